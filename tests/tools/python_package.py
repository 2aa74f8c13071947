# SPDX-License-Identifier: Apache-2.0
"""usage: python_package.py SOURCE_ROOT: the installed package `cleave` against what it promises. Exits 1 with what does
not hold."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import threading

import cleave
import jsonschema

root = pathlib.Path(sys.argv[1])
schemas = root / "tools" / "schema"
failures = []


def expect(holds, promise):
    if not holds:
        failures.append(promise)


def schema_holds(name, value):
    schema = json.loads((schemas / name).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for error in jsonschema.Draft202012Validator(schema).iter_errors(value):
        failures.append(f"{name}: {error.json_path}: {error.message}")


def raises(kind, piece, call):
    try:
        call()
    except kind as error:
        expect(piece in str(error), f"{error} has {piece!r}")
        return error
    failures.append(f"{kind.__name__} with {piece!r}")
    return None


def mlp():
    """A graph of another compiler's operators: two layers that two devices share."""
    graph = cleave.Graph.new("mlp")
    x = graph.add("lookup", columns=64, sharding=cleave.REPEATED, layer=1)
    for i in (1, 2):
        up = graph.add(f"up{i}", [x], columns=256, sharding=cleave.BY_OUTPUT, weight_bytes=64 * 256, layer=i)
        act = graph.add(f"act{i}", [up], columns=256, sharding=cleave.ELEMENTWISE, layer=i)
        x = graph.add(f"down{i}", [act], columns=64, sharding=cleave.BY_INPUT, weight_bytes=64 * 256, layer=i)
    return graph


def plans():
    h100 = cleave.Machine("sim:h100[0-3]")
    llama = cleave.Graph.shape("llama-3-8b")
    yield cleave.Plan(llama, h100)
    yield cleave.Plan(llama, h100, tensor_parallel=2, pipeline_stages=2, objective="throughput", batch=4)
    yield cleave.Plan(llama, cleave.Machine("sim:h100[0-2]"), objective="memory", pins={"lm_head": "sim:h100[0]"})
    yield cleave.Plan(llama, cleave.Machine("sim:h100[0],sim:mi300x[0]"), metis=False, dtype="int8", context=2048)
    yield cleave.Plan(root / "models" / "bundled", "host[0-1]")
    yield cleave.Plan("gemma-2-2b", "sim:h100[0-1]")
    for path in ("families/qwen3", "families/llama_awq", "families/llama/config.json", "gguf/llama.gguf"):
        yield cleave.Plan(str(root / "tests" / "files" / path), "host[0-1]", pipeline_stages=2)
    yield cleave.Plan(mlp(), cleave.Machine("sim:h100[0-1]"), tensor_parallel=2)


def look_at(plan):
    plan.verify()
    schema_holds("plan.schema.json", plan.to_json())
    expect(plan.model in str(plan) and plan.model in repr(plan), "a plan prints its model")
    expect(all(d.name in repr(plan) for s in plan.stages for d in [plan.devices[i] for i in s.devices]),
           "a plan's repr names the devices of its stages")
    for phase in ("prefill", "decode"):
        told = [s for s in plan.to_json()["steps"] if s["phase"] == phase]
        seen = plan.steps(phase)
        expect([s["kind"] for s in told] == [s.kind for s in seen], "steps are those of the JSON")
        expect([s["link_bytes"] for s in told] == [s.link_bytes for s in seen], "and move the same bytes")
    with tempfile.TemporaryDirectory() as folder:
        plan.save(pathlib.Path(folder) / "a.plan")
        again = cleave.Plan.load(pathlib.Path(folder) / "a.plan")
        expect(again.to_json() == plan.to_json(), "a plan is the same after it was saved")
        for name in ("text", "json", "dot"):
            manifest = plan.export(name, pathlib.Path(folder) / name)
            schema_holds("export.schema.json", manifest)
            expect(set(plan.export(name)) == set(manifest["files"]), "files in memory are those on disk")


def main():
    for plan in plans():
        look_at(plan)
    shared = cleave.Plan(mlp(), cleave.Machine("sim:h100[0-1]"), tensor_parallel=2)
    expect(sum(s.collective == "all_reduce" for s in shared.steps()) == 2, "a sum for each product by input")
    expect(len({d.weights_bytes for d in shared.devices}) == 1, "both devices have half of the weights")

    machine = cleave.Machine("sim:h100[0-1]")
    expect(len(machine) == 2 and "sim:h100[1]" in repr(machine), "a machine prints its devices")
    expect(len(cleave.Machine.from_json(machine.to_json())) == 2, "a machine is what its JSON says")
    schema_holds("machine.schema.json", machine.to_json())
    raises(cleave.Error, "sim:h1", lambda: cleave.Machine("sim:h1"))
    raises(cleave.Error, "no-such.onnx", lambda: cleave.Graph.load("no-such.onnx"))
    error = raises(cleave.DoesNotFit, "sim:rtx4090[1]", lambda: cleave.Plan(
        cleave.Graph.shape("llama-2-70b"), cleave.Machine("sim:rtx4090[0-1]")))
    expect(error is not None and error.devices[1]["deficit_bytes"] > 0, "what does not fit has deficits")
    expect(any(fix.startswith("dtype ") for fix in error.fixes), "a fix names the option as Plan() has it")
    other = raises(cleave.Error, "tensor_parallel 2 does not divide 3 devices", lambda: cleave.Plan(
        cleave.Graph.shape("stories-260k"), cleave.Machine("sim:h100[0-2]"), tensor_parallel=2))
    for text in (str(error), str(other), *error.fixes):
        expect("--" not in text and "$" not in text, f"no flag and no mark is in: {text}")
    raises(TypeError, "not NoneType", lambda: cleave.Plan(None, machine))
    raises(TypeError, "not int", lambda: cleave.Plan(mlp(), 4))
    raises(cleave.Error, "llama-3-8b", lambda: cleave.Plan("llama-3-8", machine))
    expect(cleave.DoesNotFit("a text").fixes == [], "errors are made of a text")
    # Codes are what a plan makes of them; a norm has none.
    for narrow in ("int8", "int4", "f8e4m3"):
        raises(cleave.Error, "weights of a shape by its name are f32, f16 or bf16",
               lambda dtype=narrow: cleave.Graph.shape("stories-15m", dtype=dtype))
    raises(ValueError, "fast", lambda: cleave.Plan(mlp(), machine, objective="fast"))
    expect({"text", "json", "dot", "vllm"} <= set(cleave.formats()), "formats are listed")

    # The example of the package's README, in a folder of its own.
    example = (root / "tools/python/README.md").read_text().split("```python\n")[1].split("```")[0]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
        with contextlib.chdir(folder):
            exec(example, {})
            expect((pathlib.Path(folder) / "out" / "plan.json").exists(), "the README's example exports")
    expect("llama-3-8b on 4 devices" in printed.getvalue(), "the README's example prints its plan")

    seen = []
    workers = [threading.Thread(target=lambda: seen.append(str(cleave.Plan(mlp(), machine)))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expect(len(set(seen)) == 1 and len(seen) == 3, "threads plan at once")
    for failure in failures:
        print("does not hold:", failure)
    return 1 if failures else 0


sys.exit(main())
