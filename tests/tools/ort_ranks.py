# SPDX-License-Identifier: Apache-2.0
"""usage: ort_ranks.py FOLDER IDS NEW_TOKENS LOGITS: runs what `cleave export --format ort-collectives` wrote without NCCL: the
folder's own run_rank.py, each rank in a thread with ONNX's reference evaluator for its session, and AllReduce and AllGather by
what com.microsoft says of them. LOGITS gets rank 0's, float32. Prints JSON: "refused", what the stock ONNX Runtime says of the
first model, "loads_without", whether it takes every model once the collectives are gone, and "tokens"."""

import json
import pathlib
import sys
import threading
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder))
import run_rank  # noqa: E402

prompt, count = [int(i) for i in sys.argv[2].split(",")], int(sys.argv[3])
models = [rank["model"] for rank in json.loads((folder / "ranks.json").read_text())["ranks"]]
barrier, parts, mine = threading.Barrier(len(models)), [None] * len(models), threading.local()


def exchange(part):
    parts[mine.rank] = part
    barrier.wait(60)
    found = list(parts)
    barrier.wait(60)
    return found


class AllReduce(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x):
        return (np.sum(exchange(x), axis=0, dtype=np.float32),)


class AllGather(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x, axis=None, group_size=None):
        found = exchange(x)
        assert group_size == len(models) and len({p.shape for p in found}) == 1
        return (np.concatenate(found, axis=axis),)


class Session:
    """As much of an InferenceSession as run_rank.py uses."""

    def __init__(self, path, device):
        model = onnx.load(path)
        onnx.checker.check_model(model)
        self.evaluator = ReferenceEvaluator(model, new_ops=[AllReduce, AllGather])
        kinds = {onnx.TensorProto.FLOAT: "tensor(float)", onnx.TensorProto.FLOAT16: "tensor(float16)",
                 onnx.TensorProto.INT64: "tensor(int64)"}
        self.inputs = [SimpleNamespace(name=i.name, type=kinds[i.type.tensor_type.elem_type],
                                       shape=[d.dim_value or d.dim_param for d in i.type.tensor_type.shape.dim])
                       for i in model.graph.input]
        self.outputs = [SimpleNamespace(name=o.name) for o in model.graph.output]

    def get_inputs(self):
        return self.inputs

    def get_outputs(self):
        return self.outputs

    def run(self, names, feeds):
        return self.evaluator.run(names, feeds)


def stock_says(path) -> str:
    try:
        onnxruntime.InferenceSession(path)
    except Exception as error:  # its classes are private
        return str(error)
    return ""


def without_collectives(name: str) -> pathlib.Path:
    model = onnx.load(folder / name, load_external_data=False)
    for node in model.graph.node:
        if node.domain == "com.microsoft":
            if node.op_type == "AllGather":  # Concat of as many equal parts has the same shape
                node.input.extend([node.input[0]] * (len(models) - 1))
                axis = next(a.i for a in node.attribute if a.name == "axis")
                del node.attribute[:]
                node.attribute.append(onnx.helper.make_attribute("axis", axis))
            node.op_type, node.domain = {"AllReduce": "Identity", "AllGather": "Concat"}[node.op_type], ""
    onnx.save(model, folder / f"stock_{name}")
    return folder / f"stock_{name}"


def run(rank: int, results: dict) -> None:
    mine.rank = rank
    results[rank] = run_rank.Rank(rank, Session).generate(prompt, count)


results: dict = {}
threads = [threading.Thread(target=run, args=(rank, results)) for rank in range(len(models))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(120)
assert len(results) == len(models) and all(results[0][0] == r[0] for r in results.values())
results[0][1].astype("<f4").tofile(sys.argv[4])
print(json.dumps({"refused": stock_says(folder / models[0]),
                  "loads_without": not any(stock_says(without_collectives(name)) for name in models),
                  "tokens": ",".join(map(str, results[0][0]))}))
