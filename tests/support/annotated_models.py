# SPDX-License-Identifier: Apache-2.0
"""Loads an annotated ONNX model in onnx and onnx-ir, runs their checks, and prints what they see of its annotations.

usage: annotated_models.py MODEL.onnx check | damage KIND OUT.onnx

check: prints JSON {"devices", "annotated", "stages", "ir_metadata", "ir_devices", "ir_annotated"}: onnx.checker and
onnx-ir's CheckerPass have passed, and onnx-ir has inferred shapes and written the file anew with all annotations. damage: writes the model with one annotation spoilt:
missing (a node's is removed), stage (another pipeline stage), device (one beyond the configuration), rename (a node is
renamed, as rewriters do), foreign (only the standard's annotations stay). Prints the node's name.
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
    node = [n for n in model.graph.node if n.op_type == "MatMul"][5]
    if kind == "missing":
        del node.device_configurations[:]
    elif kind == "stage":
        node.device_configurations[0].pipeline_stage += 1
    elif kind == "device":
        node.device_configurations[0].sharding_spec[0].device[0] = 99
    elif kind == "rename":
        node.name += "_fused"
    elif kind == "foreign":
        for message in [model, *model.graph.node]:
            del message.metadata_props[:]
    onnx.save(model, out)
    print(node.name)


if __name__ == "__main__":
    if sys.argv[2] == "check":
        check(sys.argv[1])
    else:
        damage(sys.argv[1], *sys.argv[3:5])
