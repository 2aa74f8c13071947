# SPDX-License-Identifier: Apache-2.0
"""Writes the folders of this directory: small random models as transformers saves them, and what it computes with them.

usage: make.py [NAME...]   (torch 2.9.1, transformers 5.12.1, safetensors, compressed-tensors)
Each becomes NAME/config.json and NAME/model.safetensors (or shards and their index), a row of expectations.json and
references/NAME.f32: logits [tokens, vocabulary] of the prompt and of every new token but the last, each computed anew
without a cache. `long`: a prompt behind the position at which the rotary embedding changes, and its logits.
"""

import json
import pathlib
import shutil
import sys
import zlib

import numpy as np
import quantised
import safetensors.torch
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
PROMPTS = [[1, 17, 40, 5, 33, 60, 9], [1, 8, 8, 30, 44, 21, 62], [1, 55, 3, 12, 29, 47, 6]]
NEW_TOKENS = 5

COMMON = dict(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,  # ONNX Runtime's GroupQueryAttention takes multiples of 16
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    tie_word_embeddings=False,
)
WITHOUT_HEAD_DIM = dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=None)
GEMMA3 = dict(
    tie_word_embeddings=True,
    sliding_window=4,
    query_pre_attn_scalar=8,
    layer_types=["sliding_attention", "full_attention"],
    rope_parameters=dict(
        full_attention=dict(rope_type="linear", factor=8.0, rope_theta=5000.0),
        sliding_attention=dict(rope_type="default", rope_theta=100.0),
    ),
)


def scaled(**rope):
    return dict(rope_parameters=dict(rope_theta=500.0, **rope))


# name: class of the model, what differs from COMMON, how its folder differs from transformers.
# `old_rope`: rope_theta and rope_scaling, as transformers 4 wrote them.
# `mixed`: matrices in bf16, the rest in f32.
MODELS = {
    "llama": ("Llama", {}, ()),
    "llama_sharded": ("Llama", {}, ("sharded",)),
    "llama_tied": ("Llama", dict(tie_word_embeddings=True), ()),
    "llama_bias": ("Llama", dict(attention_bias=True, mlp_bias=True), ()),
    "llama_linear": ("Llama", scaled(rope_type="linear", factor=4.0), ("old_rope",)),
    "llama_dynamic": ("Llama", dict(**scaled(rope_type="dynamic", factor=4.0), max_position_embeddings=16), ("long",)),
    "llama_yarn": (
        "Llama",
        scaled(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=1.0),
        ("old_rope",),
    ),
    "llama_3": (
        "Llama",
        scaled(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
        ("old_rope",),
    ),
    "mistral": ("Mistral", dict(sliding_window=4), ()),
    "mistral_whole": ("Mistral", dict(sliding_window=None), ()),
    "qwen2": ("Qwen2", WITHOUT_HEAD_DIM, ()),
    "qwen2_windows": (
        "Qwen2",
        dict(**WITHOUT_HEAD_DIM, use_sliding_window=True, sliding_window=4, max_window_layers=1),
        (),
    ),
    "qwen3": ("Qwen3", {}, ()),
    "phi3": ("Phi3", dict(**WITHOUT_HEAD_DIM, original_max_position_embeddings=128), ()),
    "phi3_partial": (
        "Phi3",
        dict(
            **{**WITHOUT_HEAD_DIM, "hidden_size": 64, "num_hidden_layers": 1},
            original_max_position_embeddings=16,
            sliding_window=6,
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=500.0,
                partial_rotary_factor=0.5,
                short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
                long_factor=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            ),
        ),
        ("long",),
    ),
    "gemma": ("Gemma", dict(tie_word_embeddings=True), ()),
    "gemma2": (
        "Gemma2",
        dict(
            tie_word_embeddings=True,
            sliding_window=4,
            query_pre_attn_scalar=8,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=5.0,
        ),
        (),
    ),
    "gemma3": ("Gemma3", GEMMA3, ()),
    "gemma3_old": ("Gemma3", GEMMA3, ("old_rope",)),
    "olmo2": ("Olmo2", WITHOUT_HEAD_DIM, ()),
    "granite": (
        "Granite",
        dict(
            **WITHOUT_HEAD_DIM,
            embedding_multiplier=3.0,
            logits_scaling=2.0,
            residual_multiplier=0.5,
            attention_multiplier=0.25,
        ),
        (),
    ),
    "helium": ("Helium", WITHOUT_HEAD_DIM | dict(head_dim=16), ()),
    "ministral3": (
        "Ministral3",
        dict(
            max_position_embeddings=256,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=500.0,
                factor=16.0,
                original_max_position_embeddings=16,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1,
            ),
        ),
        ("long",),
    ),
    "llama_mixed": ("Llama", {}, ("mixed",)),
    "arcee": ("Arcee", dict(attention_bias=True, mlp_bias=True), ()),
    "exaone4": (
        "Exaone4",
        dict(**WITHOUT_HEAD_DIM, sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
        (),
    ),
    "exaone4_whole": (
        "Exaone4",
        dict(**WITHOUT_HEAD_DIM, sliding_window=None, layer_types=["full_attention", "full_attention"]),
        (),
    ),
    **{
        f"llama_{how}": ("Llama", dict(**WITHOUT_HEAD_DIM, num_hidden_layers=1, intermediate_size=32), (how,))
        for how in (
            *("int4", "int8", "int4_zeros", "int8_rows", "int8_rows_zeros"),
            *("gptq", "gptq8", "awq", "fp8", "fp8_blocks"),
        )
    },
    "seed_oss": ("SeedOss", dict(attention_bias=True, attention_out_bias=False, num_hidden_layers=1), ()),
    "smollm3_four": ("SmolLM3", dict(**WITHOUT_HEAD_DIM, num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0]), ()),
    "smollm3": ("SmolLM3", dict(**WITHOUT_HEAD_DIM, tie_word_embeddings=True, no_rope_layers=[1, 0]), ()),
}


def make(name: str) -> torch.nn.Module:
    family, changes, _ = MODELS[name]
    config_class = getattr(transformers, family + ("TextConfig" if family == "Gemma3" else "Config"))
    settings = {k: v for k, v in {**COMMON, **changes}.items() if v is not None or k == "sliding_window"}
    config = config_class(**settings)
    model = getattr(transformers, family + "ForCausalLM")._from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            random = np.random.RandomState(zlib.crc32(parameter_name.encode()))
            values = random.standard_normal(tuple(parameter.shape)).astype(np.float32)
            if parameter.ndim == 1:
                values = 0.2 * values + (0.0 if "bias" in parameter_name or "Gemma" in family else 1.0)
            elif "embed_tokens" not in parameter_name:
                values *= 1.5 / np.sqrt(parameter.shape[-1])
            parameter.copy_(torch.from_numpy(values).to(torch.bfloat16).float())
    return model.float().eval()


def logits_of(model: torch.nn.Module, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def continuation(model: torch.nn.Module) -> tuple[list[int], list[int], np.ndarray]:
    """A prompt after which no choice is close, the greedy tokens after it, and all logits."""
    for prompt in PROMPTS:
        ids, margin = list(prompt), np.inf
        for _ in range(NEW_TOKENS):
            logits = logits_of(model, ids)
            best = np.sort(logits[-1])[-2:]
            margin = min(margin, best[1] - best[0])
            ids.append(int(logits[-1].argmax()))
        if margin > 1e-2:
            return prompt, ids[len(prompt) :], logits
    raise RuntimeError("after every prompt two tokens are too close to call")


def integers(model: torch.nn.Module, bits: int, group: int, symmetric: bool = True) -> tuple[dict, dict]:
    """Rounds the layers' matrices to codes of `bits` bits, and gives them as compressed-tensors packs them.

    group 0: one scale a row."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def in_words(values: torch.Tensor, axis: int) -> torch.Tensor:
        return quantised.words(values.numpy().astype(np.uint32), bits, axis, range(32 // bits))

    stored = {}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        weight = module.weight.detach()
        rows, columns = weight.shape
        blocks = weight.reshape(rows, columns // (group or columns), -1)
        if symmetric:
            scales, zeros = blocks.abs().amax(-1) / high, torch.zeros(blocks.shape[:2])
        else:
            least, most = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
            scales = (most - least) / (high - low)
            zeros = (low - least / scales).round().clamp(low, high)
        codes = (blocks / scales[..., None] + zeros[..., None]).round().clamp(low, high)
        module.weight.data.copy_(((codes - zeros[..., None]) * scales[..., None]).reshape(rows, columns))
        stored[f"{name}.weight_packed"] = in_words(codes.reshape(rows, columns) - low, 1)
        stored[f"{name}.weight_scale"] = scales
        stored[f"{name}.weight_shape"] = torch.tensor([rows, columns])
        if not symmetric:
            stored[f"{name}.weight_zero_point"] = in_words(zeros - low, 0)
    weights = dict(num_bits=bits, type="int", symmetric=symmetric, dynamic=False)
    weights |= dict(strategy="group", group_size=group) if group else dict(strategy="channel")
    config = dict(
        quant_method="compressed-tensors",
        format="pack-quantized",
        quantization_status="compressed",
        ignore=["lm_head"],
        config_groups=dict(
            group_0=dict(targets=["Linear"], weights=weights, input_activations=None, output_activations=None)
        ),
    )
    return stored, config


QUANTISED = {
    "int4": lambda model: integers(model, 4, 16),
    "int8": lambda model: integers(model, 8, 16),
    "int4_zeros": lambda model: integers(model, 4, 16, symmetric=False),
    "int8_rows": lambda model: integers(model, 8, 0),
    "int8_rows_zeros": lambda model: integers(model, 8, 0, symmetric=False),
    "gptq": lambda model: quantised.gptq(model, 4, 16, first_version=True),
    "gptq8": lambda model: quantised.gptq(model, 8, -1, first_version=False),
    "awq": lambda model: quantised.awq(model, 16),
    "fp8": quantised.float8_rows,
    "fp8_blocks": lambda model: quantised.float8_blocks(model, 16),
}


def write_quantised(folder: pathlib.Path, model: torch.nn.Module, stored: dict, quantisation: dict) -> None:
    """Replaces the folder's matrices, and has compressed-tensors read its own as a check."""
    modules = {name.rsplit(".", 1)[0] for name in stored}
    rest = {k: v for k, v in model.state_dict().items() if k.rsplit(".", 1)[0] not in modules}
    safetensors.torch.save_file({**stored, **rest}, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantisation
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    if quantisation["quant_method"] != "compressed-tensors":
        return
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    difference = np.abs(logits_of(loaded, PROMPTS[0]) - logits_of(model, PROMPTS[0])).max()
    assert difference < 1e-4, f"compressed-tensors reads another model: {difference}"


def write_old_rope(path: pathlib.Path) -> None:
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main() -> None:
    file = FOLDER / "expectations.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    (FOLDER / "references").mkdir(exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        different = MODELS[name][2]
        model = make(name)
        how = next((d for d in different if d in QUANTISED), None)
        stored, quantisation = QUANTISED[how](model) if how else ({}, {})
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder, max_shard_size="12KB" if "sharded" in different else "1GB")
        (folder / "generation_config.json").unlink(missing_ok=True)
        if "mixed" in different:
            mixed = {k: v.bfloat16() if v.ndim == 2 else v for k, v in model.state_dict().items()}
            safetensors.torch.save_file(mixed, folder / "model.safetensors", metadata={"format": "pt"})
        if "old_rope" in different:
            write_old_rope(folder / "config.json")
        if how:
            write_quantised(folder, model, stored, quantisation)
        prompt, new, logits = continuation(model)
        logits.astype("<f4").tofile(FOLDER / "references" / f"{name}.f32")
        entry = dict(
            tool=f"transformers {transformers.__version__}, torch {torch.__version__}", prompt=prompt, new_tokens=new
        )
        if "long" in different:
            entry["long"] = [1 + (7 * i) % 61 for i in range(24)]
            logits_of(model, entry["long"]).astype("<f4").tofile(FOLDER / "references" / f"{name}_long.f32")
        known[name] = entry
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{name}: {size} bytes, tokens {new}, largest logit {np.abs(logits).max():.3f}", flush=True)
    file.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
