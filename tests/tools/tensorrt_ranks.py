# SPDX-License-Identifier: Apache-2.0
"""usage: tensorrt_ranks.py FOLDER IDS LOGITS: runs what `cleave export --format tensorrt` wrote, without TensorRT: the
ONNX reference evaluator does each rank in a thread, and DistCollective by what its attributes say, which are those that
polygraphy's sharding tool gives such nodes. LOGITS gets the prompt's, float32."""

import json
import pathlib
import sys
import threading

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from polygraphy.tools.multi_device.multi_device import DistCollective as Sharding

folder = pathlib.Path(sys.argv[1])
ids = np.array([[int(i) for i in sys.argv[2].split(",")]], dtype=np.int64)
pipeline = json.loads((folder / "pipeline.json").read_text())
rank_of_thread = threading.local()


class Communicator:
    def __init__(self, size):
        self.size, self.parts, self.barrier = size, [None] * size, threading.Barrier(size)

    def exchange(self, part):
        self.parts[rank_of_thread.rank] = part
        self.barrier.wait()
        parts = list(self.parts)
        self.barrier.wait()
        return parts


communicator = None


class DistCollective(OpRun):
    op_domain = ""

    def _run(self, x, collective_operation=None, **attributes):
        theirs = Sharding(nb_rank=communicator.size)
        expected = {**getattr(theirs, f"{collective_operation}_attrs")(), "groups": theirs.groups}
        found = {**attributes, "collective_operation": collective_operation, "groups": list(attributes.get("groups") or [])}
        assert found == expected, f"{found}, and polygraphy writes {expected}"
        parts = communicator.exchange(x)
        if collective_operation == "all_reduce":
            return (np.sum(parts, axis=0, dtype=np.float32),)
        assert collective_operation == "all_gather" and len({p.shape for p in parts}) == 1
        return (np.concatenate(parts, axis=0),)


def feeds_of(model, values):
    feeds = {}
    for i in model.graph.input:
        shape = [d.dim_value for d in i.type.tensor_type.shape.dim]
        if i.name.startswith("past_key_values."):
            feeds[i.name] = np.zeros((1, shape[1], 0, shape[3]), dtype=np.float32)
        else:
            feeds[i.name] = values[i.name]
    return feeds


def run_rank(name, rank, values, results):
    rank_of_thread.rank = rank
    model = onnx.load(folder / name)
    assert sum(n.op_type == "DistCollective" for n in model.graph.node) == 0 or communicator.size > 1
    outputs = [o.name for o in model.graph.output]
    found = ReferenceEvaluator(model, new_ops=[DistCollective]).run(outputs, feeds_of(model, values))
    results[rank] = dict(zip(outputs, found))


common = {"input_ids": ids, "position_ids": np.arange(ids.shape[1], dtype=np.int64)[None],
          "attention_mask": np.ones_like(ids)}
on_device = {}  # what has been transferred there
for stage in pipeline["stages"]:
    communicator = Communicator(len(stage["ranks"]))
    results = {}
    threads = [threading.Thread(target=run_rank, args=(name, rank, {**common, **on_device.get(device, {})}, results))
               for rank, (name, device) in enumerate(zip(stage["ranks"], stage["devices"]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for t in pipeline["transfers"]:
        if t["from"] in stage["devices"]:
            on_device.setdefault(t["to"], {})[t["input"]] = results[stage["devices"].index(t["from"])][t["value"]]
logits = [r[pipeline["output"]] for r in results.values() if pipeline["output"] in r]
assert logits and all(np.array_equal(logits[0], other) for other in logits)
logits[0].astype("<f4").tofile(sys.argv[3])
