# SPDX-License-Identifier: Apache-2.0
"""Loads an annotated ONNX model in onnx and onnx-ir, runs their checks, and prints what they see of its annotations.

usage: annotated_models.py MODEL.onnx check | damage KIND OUT.onnx

check: prints JSON {"devices", "annotated", "stages", "ir_metadata", "ir_devices", "ir_annotated"}: onnx.checker and
onnx-ir's CheckerPass have passed, and onnx-ir has inferred shapes and written the file anew with all annotations. damage: writes the model with one annotation spoilt:
missing (a node's is removed), stage (another pipeline stage), device (one beyond the configuration), rename (a node is
renamed, as rewriters do), foreign (only the standard's annotations stay), and of foreign: axis (a weight is cut along the
other axis), whole (a weight is not cut), tokens (a result is cut along its tokens), stray (a node of another stage), open
(half of the layers say nothing). Prints the node's name.
"""

import json
import sys

import onnx
import onnx_ir
from onnx_ir.passes import common


def check(path: str) -> None:
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path, load_external_data=False)
    ir = onnx_ir.load(path)
    common.CheckerPass()(ir)
    common.ShapeInferencePass()(ir)
    written = onnx_ir.to_proto(ir)
    as_written = {n.name: n for n in written.graph.node}
    annotated = [n for n in model.graph.node if n.device_configurations]
    print(json.dumps({
        "devices": list(model.configuration[0].device),
        "annotated": len(annotated) == len(model.graph.node),
        "stages": sorted({n.device_configurations[0].pipeline_stage for n in annotated}),
        "ir_metadata": sum("cleave.devices" in n.metadata_props for n in ir.graph),
        "ir_devices": list(written.configuration[0].device),
        "ir_annotated": all(list(as_written[n.name].device_configurations) == list(n.device_configurations) for n in annotated),
    }))


def damage(path: str, kind: str, out: str) -> None:
    model = onnx.load(path)
    products = [n for n in model.graph.node if n.op_type == "MatMul"]
    node = products[5]
    if kind == "missing":
        del node.device_configurations[:]
    elif kind == "stage":
        node.device_configurations[0].pipeline_stage += 1
    elif kind == "device":
        node.device_configurations[0].sharding_spec[0].device[0] = 99
    elif kind == "rename":
        node.name += "_fused"
    else:
        for message in [model, *model.graph.node]:
            del message.metadata_props[:]
        cut_ones = [n for n in products if any(s.sharded_dim for s in n.device_configurations[0].sharding_spec)]
        node = cut_ones[5] if cut_ones else node
        spec = node.device_configurations[0].sharding_spec[0]
        if kind == "axis":
            spec.sharded_dim[0].axis = 1 - spec.sharded_dim[0].axis
        elif kind == "whole":
            del spec.sharded_dim[:]
        elif kind == "tokens":
            cut = node.device_configurations[0].sharding_spec.add()
            cut.CopyFrom(spec)
            cut.tensor_name = node.output[0]
            cut.sharded_dim[0].axis = 1
        elif kind == "stray":
            node.device_configurations[0].pipeline_stage = 7
        elif kind == "open":
            for other in model.graph.node:
                if any(f"/layers.{i}/" in other.name for i in (0, 1, 2)):
                    del other.device_configurations[0].sharding_spec[:]
                    other.device_configurations[0].ClearField("pipeline_stage")
    onnx.save(model, out)
    print(node.name)


if __name__ == "__main__":
    if sys.argv[2] == "check":
        check(sys.argv[1])
    else:
        damage(sys.argv[1], *sys.argv[3:5])
