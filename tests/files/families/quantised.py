# SPDX-License-Identifier: Apache-2.0
"""How folders with quantised matrices store them, for make.py: each function rounds the layers' matrices of a model in
place and returns the tensors that stand for them and the quantization_config.

GPTQ: https://github.com/ModelCloud/GPTQModel (nn_modules/qlinear); AWQ: https://github.com/casper-hansen/AutoAWQ
(modules/linear/gemm.py); float8: https://github.com/vllm-project/compressed-tensors and transformers' finegrained_fp8.
"""

import numpy as np
import torch


def _layers(model):
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            yield name, module


def _with_zeros(weight, bits, group):
    """Codes [rows, columns], zero points and f16 scales [rows, groups], and what they stand for."""
    most = 2**bits - 1
    rows, columns = weight.shape
    blocks = weight.reshape(rows, columns // group, group)
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scales = ((high - low) / most).astype(np.float16)
    wide = scales.astype(np.float32)
    zeros = np.clip(np.round(-low / wide), 0, most).astype(np.uint32)
    codes = np.clip(np.round(blocks / wide[..., None]) + zeros[..., None], 0, most).astype(np.uint32)
    expanded = (codes.astype(np.float32) - zeros[..., None]) * wide[..., None]
    return codes.reshape(rows, columns), zeros, scales, expanded.reshape(rows, columns)


def words(codes, bits, axis, order):
    """Codes of consecutive places along the axis in one int32: place order[i] in its bits i * bits."""
    codes = np.moveaxis(codes, axis, 0)
    count = 32 // bits
    words = np.zeros((codes.shape[0] // count, *codes.shape[1:]), np.uint32)
    for i, place in enumerate(order):
        words |= codes[place::count] << np.uint32(i * bits)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(words, 0, axis)).view(np.int32))


def gptq(model, bits, group, first_version):
    stored = {}
    for name, module in _layers(model):
        weight = module.weight.detach().numpy()
        size = group if group > 0 else weight.shape[1]
        codes, zeros, scales, expanded = _with_zeros(weight, bits, size)
        module.weight.data.copy_(torch.from_numpy(expanded))
        kept = (zeros - 1) & np.uint32(2**bits - 1) if first_version else zeros
        plain = range(32 // bits)
        stored[f"{name}.qweight"] = words(codes.T, bits, 0, plain)
        stored[f"{name}.qzeros"] = words(kept.T, bits, 1, plain)
        stored[f"{name}.scales"] = torch.from_numpy(np.ascontiguousarray(scales.T))
        stored[f"{name}.g_idx"] = torch.arange(weight.shape[1], dtype=torch.int32) // size
    config = dict(
        quant_method="gptq",
        bits=bits,
        group_size=group,
        desc_act=False,
        sym=False,
        lm_head=False,
        checkpoint_format="gptq" if first_version else "gptq_v2",
        pack_dtype="int32",
    )
    return stored, config


def awq(model, group):
    stored = {}
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    for name, module in _layers(model):
        codes, zeros, scales, expanded = _with_zeros(module.weight.detach().numpy(), 4, group)
        module.weight.data.copy_(torch.from_numpy(expanded))
        stored[f"{name}.qweight"] = words(codes.T, 4, 1, order)
        stored[f"{name}.qzeros"] = words(zeros.T, 4, 1, order)
        stored[f"{name}.scales"] = torch.from_numpy(np.ascontiguousarray(scales.T))
    return stored, dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm")


def _rounded(values, scales):
    return (values / scales).clamp(-448, 448).to(torch.float8_e4m3fn)


def float8_rows(model):
    """compressed-tensors, a scale a row."""
    stored = {}
    for name, module in _layers(model):
        weight = module.weight.detach()
        scales = weight.abs().amax(-1, keepdim=True) / 448
        codes = _rounded(weight, scales)
        module.weight.data.copy_(codes.float() * scales)
        stored[f"{name}.weight"], stored[f"{name}.weight_scale"] = codes, scales
    weights = dict(num_bits=8, type="float", symmetric=True, strategy="channel", dynamic=False)
    config = dict(
        quant_method="compressed-tensors",
        format="float-quantized",
        quantization_status="compressed",
        ignore=["lm_head"],
        config_groups=dict(
            group_0=dict(targets=["Linear"], weights=weights, input_activations=None, output_activations=None)
        ),
    )
    return stored, config


def float8_blocks(model, size):
    """transformers' fp8, a scale for size x size elements."""
    stored = {}
    for name, module in _layers(model):
        weight = module.weight.detach()
        rows, columns = (-(-n // size) for n in weight.shape)
        scales = torch.ones(rows, columns)
        for r in range(rows):
            for c in range(columns):
                scales[r, c] = weight[r * size : (r + 1) * size, c * size : (c + 1) * size].abs().max() / 448
        wide = scales.repeat_interleave(size, 0)[: weight.shape[0]].repeat_interleave(size, 1)[:, : weight.shape[1]]
        codes = _rounded(weight, wide)
        module.weight.data.copy_(codes.float() * wide)
        stored[f"{name}.weight"], stored[f"{name}.weight_scale_inv"] = codes, scales
    config = dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[size, size])
    return stored, config
