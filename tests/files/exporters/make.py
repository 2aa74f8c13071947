# SPDX-License-Identifier: Apache-2.0
"""Writes the files of this folder with the exporters of one Python environment (README.md lists them).

usage: make.py ENVIRONMENT [NAME...]
Each file of `recipes()` whose environment that is (or only those named) is exported from a random model of models.py,
run by ONNX Runtime where that can, and noted in expectations.json with what transformers computes.
"""

import gzip
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx

import exporters
import models

FOLDER = pathlib.Path(__file__).parent


def strip(model: onnx.ModelProto) -> None:
    """Removes stack traces and Python source, most of a small file and of no meaning to anyone but its author."""
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        for item in [graph, *graph.node, *graph.value_info, *getattr(graph, "initializer", [])]:
            if hasattr(item, "metadata_props"):
                del item.metadata_props[:]
        for node in graph.node:
            node.doc_string = ""
    del model.metadata_props[:]


def run(path: pathlib.Path, prompt: list[int], new: list[int], config: dict) -> np.ndarray:
    """ONNX Runtime's logits of `prompt` and of all but the last of `new`, one token at a time where there is a cache."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    types = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float16)": np.float16, "tensor(bool)": bool}
    inputs = session.get_inputs()
    past = [v for v in inputs if len(v.shape) == 4]
    outputs = [v.name for v in session.get_outputs()]

    def past_shape(v):
        free = [1, config["num_kv_heads"], 0, config["head_dim"]]
        return [d if isinstance(d, int) else free[i] for i, d in enumerate(v.shape)]

    caches = [np.zeros(past_shape(v), types.get(v.type, np.float32)) for v in past]
    rows, chunks = [], [prompt, *[[t] for t in new[:-1]]]
    if not past:
        chunks = [prompt + new[:-1]]
    elif any(v.name == "input_ids" and v.shape[1] == 1 for v in inputs):
        chunks = [[t] for t in prompt + new[:-1]]
    length = 0
    for chunk in chunks:
        feeds = {v.name: c for v, c in zip(past, caches)}
        for v in inputs:
            if v in past:
                continue
            value = np.array([chunk])
            if "mask" in v.name:
                value = np.ones((1, length + len(chunk)))
            elif "position" in v.name:
                value = np.arange(length, length + len(chunk))[None]
            elif v.name == "use_cache_branch":
                value = np.array([True])
            feeds[v.name] = value.astype(types.get(v.type, np.float32))
        results = session.run(outputs, feeds)
        caches = [r for r in results if r.ndim == 4 and r.shape[0] == 1]
        rows.append(results[0][0].astype(np.float32))
        length += len(chunk)
    return np.concatenate(rows)


def note(recipe: exporters.Recipe, path: pathlib.Path) -> None:
    """One entry of expectations.json, and the reference that it names."""
    model = models.reference(recipe.model)
    prompt, new, logits = models.continuation(model)
    try:
        ran = run(path, prompt, new, models.description(model))
    except Exception as error:  # what ONNX Runtime cannot run is judged by transformers alone
        ran = str(error).replace("\n", " ")[:160]
    reference = recipe.model
    if recipe.own_reference:
        reference, new = recipe.file, []
        for _ in range(models.NEW_TOKENS):
            logits = ran = run(path, prompt, [*new, 0], models.description(model))
            new.append(int(logits[-1].argmax()))
    (FOLDER / "references").mkdir(exist_ok=True)
    logits.astype("<f4").tofile(FOLDER / "references" / f"{reference}.f32")
    agrees = float(np.abs(ran - logits[-len(ran) :]).max()) if isinstance(ran, np.ndarray) else ran
    entry = dict(
        tool=recipe.tool(),
        model=recipe.model,
        options=recipe.options,
        config=models.description(model),
        reference=reference,
        prompt=prompt,
        new_tokens=new,
        tolerance=recipe.tolerance,
        onnxruntime=agrees,
    )
    if recipe.windows:
        entry["config"]["windows"] = recipe.windows
    if recipe.opaque:
        entry["opaque"] = True
    if recipe.stopped:
        entry["stopped"] = recipe.stopped
    if recipe.refused:
        entry["refused"] = recipe.refused
    file = FOLDER / "expectations.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known[recipe.file] = entry
    file.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    print(f"{recipe.file}: {path.stat().st_size} bytes, ONNX Runtime: {agrees}", flush=True)


def main() -> None:
    environment, names = sys.argv[1], sys.argv[2:]
    failed = []
    for recipe in exporters.recipes():
        if recipe.environment != environment or (names and recipe.file not in names):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            try:
                proto = recipe.export(pathlib.Path(scratch))
                strip(proto)
                path = pathlib.Path(scratch) / "stripped.onnx"
                onnx.save(proto, str(path))
                note(recipe, path)
                packed = gzip.compress(path.read_bytes(), mtime=0)
                (FOLDER / f"{recipe.file}.onnx.gz").write_bytes(packed)
            except Exception as error:
                failed.append(recipe.file)
                print(f"{recipe.file}: FAILED {type(error).__name__}: {str(error)[-600:]}", flush=True)
    print("failed:", " ".join(failed) or "none")


if __name__ == "__main__":
    main()
