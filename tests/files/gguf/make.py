# SPDX-License-Identifier: Apache-2.0
"""Writes the files of this directory with the package of ggml's authors: GGUF files as llama.cpp's converter writes them.

usage: make.py [NAME...]   (gguf 0.19.0, safetensors, numpy, sentencepiece)
NAME.gguf: the model of ../families/NAME, whose tokens and logits are those of transformers (../families).
blocks.gguf: a Llama whose matrices have a type of blocks each; blocks.json: what the package makes of each, as digests.
tokenizer_*.gguf: no model, a tokenizer: what models/bundled and tests/runtime/text/data/bpe.model have.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

FOLDER = pathlib.Path(__file__).parent
FAMILIES = FOLDER.parent / "families"
ROOT = FOLDER.parents[2]

# name: architecture, type of the matrices, whether q and k are stored for neighbouring features
FILES = {
    "llama": ("llama", "F32", True),
    "llama_3": ("llama", "F16", True),
    "llama_bias": ("llama", "BF16", True),
    "llama_linear": ("llama", "F16", True),
    "llama_tied": ("llama", "F16", True),
    "llama_yarn": ("llama", "F16", True),
    "qwen2": ("qwen2", "F16", False),
    "qwen3": ("qwen3", "BF16", False),
    "gemma": ("gemma", "F16", False),
    "gemma2": ("gemma2", "F32", False),
    "gemma3": ("gemma3", "BF16", False),
    "phi3": ("phi3", "F16", False),
    "granite": ("granite", "F16", True),
    "olmo2": ("olmo2", "F16", False),
    "arcee": ("arcee", "F16", True),
    "seed_oss": ("seed_oss", "F16", False),
    "smollm3_four": ("smollm3", "F16", True),
    "exaone4": ("exaone4", "F16", False),
    "exaone4_whole": ("exaone4", "BF16", False),
    "phi3_partial": ("phi3", "F16", False),
}
MODULES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Types of blocks in the layers of blocks.gguf, in the order of its matrices.
BLOCKS = ["Q4_0", "Q4_1", "Q8_0", "Q5_0", "Q4_K", "Q6_K", "Q2_K", "Q8_0", "Q4_0", "Q4_1", "Q5_1", "Q5_K", "Q3_K", "Q6_K"]


def name_of(name, behind):
    module, kind = name.rsplit(".", 1)
    prefix = ""
    if module.startswith("model.layers."):
        _, _, layer, module = module.split(".", 3)
        prefix = f"blk.{layer}."
    if module == "post_attention_layernorm":
        return f"{prefix}{'post_attention_norm' if behind else 'ffn_norm'}.{kind}"
    return f"{prefix}{MODULES[module]}.{kind}"


def neighbours(tensor, heads):
    """Rows of each head: features i and i + half become neighbours."""
    half = tensor.shape[0] // heads // 2
    return tensor.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(tensor.shape)


def bfloat16(tensor):
    bits = tensor.astype(np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16)


def add_sizes(out, config):
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    return head_dim


def llama3_divisors(rope, theta, dim):
    """Of each frequency (https://arxiv.org/abs/2407.21783), as the converter writes them."""
    factors = []
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    for i in range(0, dim, 2):
        length = 2 * np.pi * theta ** (i / dim)
        smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"]
        )
        if length < high:
            factors.append(1.0)
        elif length > low:
            factors.append(rope["factor"])
        else:
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def add_rotation(out, architecture, config, head_dim):
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "full_attention" in rope:
        out.add_float32(f"{architecture}.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    theta = rope.get("rope_theta") or config["rope_theta"]
    turning = int(head_dim * rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1)))
    out.add_rope_freq_base(theta)
    out.add_rope_dimension_count(turning)
    kind = rope.get("rope_type", "default")
    if kind in ("linear", "yarn"):
        out.add_rope_scaling_type(gguf.RopeScalingType(kind))
        out.add_rope_scaling_factor(rope["factor"])
        if kind == "yarn":
            out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif kind == "llama3":
        out.add_tensor("rope_freqs.weight", llama3_divisors(rope, theta, turning))
    elif kind == "longrope":
        original, most = config["original_max_position_embeddings"], config["max_position_embeddings"]
        out.add_rope_scaling_orig_ctx_len(original)
        out.add_rope_scaling_attn_factors((1 + np.log(most / original) / np.log(original)) ** 0.5)
        for which in ("short", "long"):
            out.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))
    else:
        assert kind == "default", kind


def write_family(name, architecture, dtype, permuted):
    config = json.loads((FAMILIES / name / "config.json").read_text())
    out = gguf.GGUFWriter(FOLDER / f"{name}.gguf", architecture)
    add_rotation(out, architecture, config, add_sizes(out, config))
    if config.get("sliding_window") and architecture in ("gemma2", "gemma3", "phi3", "exaone4"):
        out.add_sliding_window(config["sliding_window"])
    if architecture == "gemma2":
        out.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        out.add_final_logit_softcapping(config["final_logit_softcapping"])
    if architecture == "granite":
        out.add_attention_scale(config["attention_multiplier"])
        out.add_embedding_scale(config["embedding_multiplier"])
        out.add_residual_scale(config["residual_multiplier"])
        out.add_logit_scale(config["logits_scaling"])
    if architecture == "gemma3" or architecture == "exaone4" and config.get("sliding_window"):
        key = gguf.Keys.Attention.SLIDING_WINDOW_PATTERN.format(arch=architecture)
        out.add_array(key, [kind == "sliding_attention" for kind in config["layer_types"]])
    # Readers divide the scores by the root of the head's size, whatever the model does.
    scaled = {"gemma2": "q_proj", "gemma3": "q_norm"}.get(architecture)
    behind = architecture in ("gemma2", "gemma3", "olmo2", "seed_oss", "exaone4")
    for tensor_name, tensor in load_file(FAMILIES / name / "model.safetensors").items():
        if permuted and ".q_proj." in tensor_name:
            tensor = neighbours(tensor, config["num_attention_heads"])
        if permuted and ".k_proj." in tensor_name:
            tensor = neighbours(tensor, config["num_key_value_heads"])
        if architecture.startswith("gemma") and "norm" in tensor_name:
            tensor = tensor + 1
        if f".{scaled}." in tensor_name:
            tensor = tensor * np.float32((config["head_dim"] / config["query_pre_attn_scalar"]) ** 0.5)
        to = name_of(tensor_name, behind)
        if tensor.ndim == 1 or dtype == "F32":
            out.add_tensor(to, tensor.astype(np.float32))
        elif dtype == "F16":
            assert (tensor.astype(np.float16).astype(np.float32) == tensor).all()
            out.add_tensor(to, tensor.astype(np.float16))
        else:
            out.add_tensor(to, bfloat16(tensor), raw_dtype=gguf.GGMLQuantizationType.BF16)
    finish(out)


def finish(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def random_blocks(random, kind, rows, columns):
    """Codes of every value under scales of a size that models have."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
    halves = {  # where a block has f16 numbers
        "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
        "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    }[kind.name]  # fmt: skip
    least = {"Q4_1": 8, "Q5_1": 16, "Q2_K": 1.5, "Q4_K": 8, "Q5_K": 16}.get(kind.name, 0)
    largest = {"Q8_0": 128, "Q4_0": 8, "Q5_0": 16, "Q4_1": 16, "Q5_1": 32, "Q2_K": 45, "Q3_K": 128, "Q4_K": 945,
               "Q5_K": 1953, "Q6_K": 4096}[kind.name]  # fmt: skip
    for i, at in enumerate(halves):
        scale = random.uniform(0.1, 0.2, len(blocks)) / largest
        if i == 1:  # smallest values; those of blocks of 32 carry their sign themselves
            scale *= least if largest in (45, 945, 1953) else -least
        blocks[:, at : at + 2] = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def fnv1a(data):
    """64 bits of it, in hexadecimal."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def write_blocks():
    random = np.random.default_rng(7)
    config = dict(num_hidden_layers=2, max_position_embeddings=64, hidden_size=256, intermediate_size=256, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-5)  # fmt: skip
    out = gguf.GGUFWriter(FOLDER / "blocks.gguf", "llama")
    out.add_rope_freq_base(10000.0)
    out.add_rope_dimension_count(add_sizes(out, config))
    digests = {}

    def add(name, kind, rows, columns):
        kind = gguf.GGMLQuantizationType[kind]
        blocks = random_blocks(random, kind, rows, columns)
        if kind.name == "Q4_1":  # a block of one value, whose scale is 0
            blocks[0, :4] = np.array([0, 0.25], np.float16).view(np.uint8)
        out.add_tensor(name, blocks, raw_dtype=kind)
        expanded = gguf.dequantize(blocks, kind).astype(np.float32)
        digests[name] = fnv1a(expanded.tobytes())

    for layer in range(2):
        kinds = BLOCKS[7 * layer :]
        sizes = [256, 128, 128, 256, 256, 256, 256]
        modules = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
        for module, rows, kind in zip(modules, sizes, kinds):
            add(f"blk.{layer}.{module}.weight", kind, rows, 256)
        for norm in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{layer}.{norm}.weight", random.uniform(0.8, 1.2, 256).astype(np.float32))
    out.add_tensor("output_norm.weight", random.uniform(0.8, 1.2, 256).astype(np.float32))
    add("token_embd.weight", "Q8_0", 64, 256)
    add("output.weight", "Q6_K", 64, 256)
    finish(out)
    (FOLDER / "blocks.json").write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")


def write_bpe():
    tokenizer = json.loads((ROOT / "models/bundled/tokenizer.json").read_text())
    vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    out = gguf.GGUFWriter(FOLDER / "tokenizer_gpt2.gguf", "llama")
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(vocabulary)
    out.add_token_types([3 if i in added else 1 for i in range(len(vocabulary))])
    out.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in tokenizer["model"]["merges"]])
    out.add_bos_token_id(0)
    out.add_eos_token_id(1)
    out.add_add_bos_token(True)
    config = json.loads((ROOT / "models/bundled/tokenizer_config.json").read_text())
    out.add_chat_template(config["chat_template"])
    finish(out)


def write_sentencepiece():
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(str(ROOT / "tests/runtime/text/data/bpe.model"))
    ids = range(model.vocab_size())

    def type_of(i):
        if model.is_unknown(i):
            return 2
        if model.is_control(i):
            return 3
        if model.is_byte(i):
            return 6
        return 4 if model.get_score(i) == 0 and model.id_to_piece(i).startswith("<") else 1

    out = gguf.GGUFWriter(FOLDER / "tokenizer_llama.gguf", "llama")
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list([model.id_to_piece(i) for i in ids])
    out.add_token_scores([model.get_score(i) for i in ids])
    out.add_token_types([type_of(i) for i in ids])
    out.add_bos_token_id(model.bos_id())
    out.add_eos_token_id(model.eos_id())
    out.add_unk_token_id(model.unk_id())
    finish(out)


if __name__ == "__main__":
    if sys.argv[1:]:
        for name in sys.argv[1:]:
            write_family(name, *FILES[name])
        sys.exit()
    for name, how in FILES.items():
        write_family(name, *how)
    write_blocks()
    write_bpe()
    write_sentencepiece()
