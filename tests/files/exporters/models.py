# SPDX-License-Identifier: Apache-2.0
"""The small random models that make.py exports, and what transformers computes with them.

Weights come from the parameter's name alone and are numbers of bfloat16 (and float16), so that every version of torch
and every type of file holds the same ones.
"""

import zlib

import numpy as np
import torch
import transformers

PROMPTS = [[1, 17, 40, 5, 33, 60, 9], [1, 8, 8, 30, 44, 21, 62], [1, 55, 3, 12, 29, 47, 6]]
NEW_TOKENS = 5

_COMMON = dict(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    tie_word_embeddings=False,
    rms_norm_eps=1e-5,
)
# Heads that ONNX Runtime's own operators take, rows that quantised blocks divide.
_WIDE = dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16)

# name: class of the model, what differs from _COMMON
MODELS = {
    "llama": ("Llama", {}),
    "llama_two": ("Llama", dict(num_hidden_layers=2)),
    "llama_tied": ("Llama", dict(tie_word_embeddings=True)),
    "llama_bias": ("Llama", dict(attention_bias=True, mlp_bias=True)),
    "llama_attention_bias": ("Llama", dict(attention_bias=True)),
    "llama_mqa": ("Llama", dict(num_key_value_heads=1)),
    "llama_mha": ("Llama", dict(num_key_value_heads=4)),
    "llama_wide": ("Llama", _WIDE),
    "llama_wide_tied": ("Llama", dict(**_WIDE, tie_word_embeddings=True)),
    "llama3": (
        "Llama",
        dict(
            rope_theta=500.0,
            rope_scaling=dict(
                rope_type="llama3",
                type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
    ),
    "mistral": ("Mistral", dict(sliding_window=4)),
    "mistral_open": ("Mistral", dict(sliding_window=None)),
    # As transformers 4.40 computes it itself: its mask lets one token more through than other
    # versions and exporters.
    "mistral_one_more": ("Mistral", dict(sliding_window=4)),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", dict(head_dim=4)),
    "phi3": ("Phi3", dict(original_max_position_embeddings=128)),
    # onnxruntime-genai takes any product of as many columns as the vocabulary for the head: gate
    # and up must be fewer.
    "phi3_two": ("Phi3", dict(original_max_position_embeddings=128, num_hidden_layers=2, intermediate_size=24)),
    "gemma": ("Gemma", dict(head_dim=4, tie_word_embeddings=True)),
    "gemma2": (
        "Gemma2",
        dict(head_dim=4, num_hidden_layers=2, sliding_window=4, tie_word_embeddings=True, query_pre_attn_scalar=4),
    ),
    # As onnxruntime-genai 0.9 writes both, whatever the configuration says of their layers.
    "gemma2_odd": (
        "Gemma2",
        dict(
            head_dim=4,
            num_hidden_layers=2,
            sliding_window=4,
            tie_word_embeddings=True,
            query_pre_attn_scalar=4,
            layer_types=["full_attention", "sliding_attention"],
        ),
    ),
    "gemma3_local": (
        "Gemma3",
        dict(
            head_dim=4,
            num_hidden_layers=2,
            sliding_window=4,
            tie_word_embeddings=True,
            query_pre_attn_scalar=4,
            layer_types=["sliding_attention", "sliding_attention"],
        ),
    ),
    "gemma3": (
        "Gemma3",
        dict(
            head_dim=4,
            num_hidden_layers=2,
            sliding_window=4,
            tie_word_embeddings=True,
            query_pre_attn_scalar=4,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    "granite": (
        "Granite",
        dict(
            embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5, attention_multiplier=0.25
        ),
    ),
    "olmo2": ("Olmo2", {}),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=2, no_rope_layers=[1, 0], use_sliding_window=False)),
    "arcee": ("Arcee", {}),
    # Queries grow with the logarithm of the position from the original length on: the context ends
    # there.
    "ministral3": (
        "Ministral3",
        dict(
            head_dim=4,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e6,
                factor=16.0,
                original_max_position_embeddings=64,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1,
            ),
        ),
    ),
    "cohere": ("Cohere", dict(logit_scale=1.0)),
    "helium": ("Helium", dict(head_dim=4)),
    "gpt_oss": (
        "GptOss",
        dict(head_dim=4, num_local_experts=2, num_experts_per_tok=1, sliding_window=4, layer_types=["full_attention"]),
    ),
}


def reference(name: str) -> torch.nn.Module:
    """The model that gives the logits to expect of `name`."""
    model = make(name)
    return make(name, sliding_window=3) if name == "mistral" and _windows(model.config) == [5] else model


def make(name: str, attention: str = "eager", **more) -> torch.nn.Module:
    """The model `name` in float32, with `attention` of transformers: eager or sdpa."""
    family, changes = MODELS[name]
    config_class = getattr(transformers, family + ("TextConfig" if family == "Gemma3" else "Config"))
    config = config_class(**{**_COMMON, **changes, **more})
    config._attn_implementation = attention
    config.torch_dtype = torch.float32
    model = getattr(transformers, family + "ForCausalLM")._from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            random = np.random.RandomState(zlib.crc32(parameter_name.encode()))
            values = random.standard_normal(tuple(parameter.shape)).astype(np.float32)
            if parameter.ndim == 1:
                values = 0.2 * values + (0.0 if "bias" in parameter_name or "Gemma" in family else 1.0)
            elif "embed_tokens" not in parameter_name:
                values *= 1.5 / np.sqrt(parameter.shape[-1])
            parameter.copy_(torch.from_numpy(values).to(torch.bfloat16).float())
    config.architectures = [family + "ForCausalLM"]
    return model.float().eval()


def continuation(model: torch.nn.Module) -> tuple[list[int], list[int], np.ndarray]:
    """A prompt, the greedy tokens after it, and the logits [tokens seen, vocabulary]: without a cache, each anew.

    The prompt is one after which no choice is close.
    """
    for prompt in PROMPTS:
        ids, margin = list(prompt), np.inf
        with torch.no_grad():
            for _ in range(NEW_TOKENS):
                logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy()
                best = np.sort(logits[-1])[-2:]
                margin = min(margin, best[1] - best[0])
                ids.append(int(logits[-1].argmax()))
        if margin > 1e-2:
            return prompt, ids[len(prompt) :], logits
    raise RuntimeError("after every prompt two tokens are too close to call")


def description(model: torch.nn.Module) -> dict:
    """What an importer has to find, from the configuration alone."""
    c = model.config
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    return dict(
        num_layers=c.num_hidden_layers,
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        vocab_size=c.vocab_size,
        num_heads=c.num_attention_heads,
        num_kv_heads=c.num_key_value_heads,
        head_dim=head_dim,
        windows=_windows(c),
        rotated=[bool(r) for r in getattr(c, "no_rope_layers", [1] * c.num_hidden_layers)],
    )


def _windows(c) -> list[int]:
    """How many tokens each layer's attention sees; 0: all of them."""
    window = getattr(c, "sliding_window", None) or 0
    if not getattr(c, "use_sliding_window", True):
        window = 0
    if window and c.model_type == "mistral" and transformers.__version__.startswith("4.40."):
        window += 1
    kinds = getattr(c, "layer_types", None) or ["sliding_attention"] * c.num_hidden_layers
    return [window if kind == "sliding_attention" else 0 for kind in kinds]
