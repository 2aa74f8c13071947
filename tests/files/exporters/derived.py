# SPDX-License-Identifier: Apache-2.0
"""What tools make of files that exist already: optimisers, converters, quantisers. Each gives a changed model."""

import gzip
import pathlib

import numpy as np
import onnx

FOLDER = pathlib.Path(__file__).parent


def base(name: str, scratch: pathlib.Path) -> pathlib.Path:
    path = scratch / "base.onnx"
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.onnx.gz").read_bytes()))
    return path


def ort_optimised(path, out, level):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    options.optimized_model_filepath = str(out)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def simplified(path, out):
    import onnxsim

    model, _ = onnxsim.simplify(onnx.load(path))
    onnx.save(model, out)


def slimmed(path, out):
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(path)), out)


def script_optimised(path, out):
    import onnxscript.optimizer

    onnx.save(onnxscript.optimizer.optimize(onnx.load(path)), out)


def converted(path, out, opset):
    import onnx.version_converter

    onnx.save(onnx.version_converter.convert_version(onnx.load(path), opset), out)


def script_converted(path, out, opset):
    import onnx_ir as ir
    import onnxscript.version_converter

    model = ir.load(path)
    onnxscript.version_converter.convert_version(model, target_version=opset)
    ir.save(model, out)


def half(path, out, keep_io=True):
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=keep_io), out)


def dynamic_int8(path, out, per_channel=False, unsigned=False, all=False):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        path,
        out,
        per_channel=per_channel,
        weight_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Gather"],
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT, "MatMulConstBOnly": not all},
    )


def nbits(path, out, bits=4, symmetric=True, qdq=False, block=16):
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        DefaultWeightOnlyQuantConfig,
        MatMulNBitsQuantizer,
        QuantFormat,
    )

    config = DefaultWeightOnlyQuantConfig(
        block_size=block,
        is_symmetric=symmetric,
        accuracy_level=1,
        bits=bits,
        quant_format=QuantFormat.QDQ if qdq else QuantFormat.QOperator,
    )
    quantizer = MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(out))


def static_int8(path, out):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = 2

        def get_next(self):
            self.left -= 1
            ids = np.arange(8)[None] + 3 * self.left
            return {"input_ids": ids} if self.left >= 0 else None

    quantize_static(path, out, Reader(), quant_format=QuantFormat.QDQ, op_types_to_quantize=["MatMul"])


def fixed(path, out, sizes):
    from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

    model = onnx.load(path)
    for name, size in sizes.items():
        make_dim_param_fixed(model.graph, name, size)
    onnx.save(model, out)


def int32_ids(path, out):
    """As exporters for phones write it: every integer input is int32, cast at once."""
    model = onnx.load(path)
    for value in model.graph.input:
        if value.type.tensor_type.elem_type != onnx.TensorProto.INT64:
            continue
        value.type.tensor_type.elem_type = onnx.TensorProto.INT32
        for node in model.graph.node:
            for i, name in enumerate(node.input):
                if name == value.name:
                    node.input[i] = name + "_int64"
        cast = onnx.helper.make_node("Cast", [value.name], [value.name + "_int64"], to=onnx.TensorProto.INT64)
        model.graph.node.insert(0, cast)
    onnx.save(model, out)


CHANGES = dict(
    ort=ort_optimised,
    onnxsim=simplified,
    onnxslim=slimmed,
    onnxscript=script_optimised,
    opset=converted,
    script_opset=script_converted,
    half=half,
    dynamic_int8=dynamic_int8,
    nbits=nbits,
    static_int8=static_int8,
    fixed=fixed,
    int32=int32_ids,
)


def change(recipe, scratch: pathlib.Path) -> onnx.ModelProto:
    options = dict(recipe.options)
    path, out = base(options.pop("file"), scratch), scratch / "out.onnx"
    CHANGES[options.pop("by")](path, out, **options)
    return onnx.load(out)
