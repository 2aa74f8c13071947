# SPDX-License-Identifier: Apache-2.0
"""Exports the trained model with torch's TorchScript exporter and checks the result.

Out: model.onnx (opset 17, weights inline) beside the tokenizer and the configurations. Inputs:
input_ids, attention_mask, position_ids, past_key_values.N.{key,value}; outputs: logits,
present.N.{key,value}. Batch, sequence and past length are dynamic.
"""

from __future__ import annotations

import pathlib
import warnings

import onnx
import onnxruntime
import torch
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedTokenizerFast

OPSET = 17
TOLERANCE = 1e-4
PROMPTS = (
    "Once upon a time",
    "One day, a little fox",
    "Lily was a kind girl.",
    "It was a sunny day",
)


def cache_of(past: tuple[torch.Tensor, ...]) -> DynamicCache:
    """A cache that holds key, value, key, value, ... each [batch, kv_heads, past, head_dim]."""
    return DynamicCache(list(zip(past[::2], past[1::2], strict=True)))


def flat(cache: DynamicCache) -> list[torch.Tensor]:
    """The reverse of cache_of."""
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


class WithPast(torch.nn.Module):
    """The model as a function of tensors only, which is what the exporter traces."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.m = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        *past: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        out = self.m(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache_of(past),
            use_cache=True,
        )
        return (out.logits, *flat(out.past_key_values))


def past_names(model: LlamaForCausalLM, prefix: str) -> list[str]:
    """Names of the cache tensors, in the order of cache_of."""
    layers = range(model.config.num_hidden_layers)
    return [f"{prefix}.{layer}.{part}" for layer in layers for part in ("key", "value")]


def empty_past(model: LlamaForCausalLM, batch: int, length: int = 0) -> tuple[torch.Tensor, ...]:
    """Random cache contents of `length` tokens for every layer."""
    config = model.config
    shape = (batch, config.num_key_value_heads, length, config.head_dim)
    return tuple(torch.randn(shape) for _ in range(2 * config.num_hidden_layers))


def save_onnx(model: LlamaForCausalLM, path: pathlib.Path) -> None:
    """Traces a step of 3 tokens after 5 for a batch of 2, and declares which sizes may vary."""
    inputs, outputs = past_names(model, "past_key_values"), past_names(model, "present")
    ids = torch.ones(2, 3, dtype=torch.long)
    args = (ids, torch.ones(2, 8, dtype=torch.long), torch.arange(5, 8).repeat(2, 1))
    token_axes = {0: "batch_size", 1: "sequence_length"}
    total = "total_sequence_length"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            WithPast(model),
            args + empty_past(model, 2, 5),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=["input_ids", "attention_mask", "position_ids", *inputs],
            output_names=["logits", *outputs],
            dynamic_axes={
                "input_ids": token_axes,
                "attention_mask": {0: "batch_size", 1: total},
                "position_ids": token_axes,
                "logits": token_axes,
                **{name: {0: "batch_size", 2: "past_sequence_length"} for name in inputs},
                **{name: {0: "batch_size", 2: total} for name in outputs},
            },
        )
    onnx.checker.check_model(str(path), full_check=True)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: pathlib.Path) -> None:
    """Writes everything that a runtime needs, and nothing else, to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for origin in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(origin, None)
    tokenizer.save_pretrained(out, save_jinja_files=False)
    for extra in ("special_tokens_map.json", "chat_template.jinja"):
        (out / extra).unlink(missing_ok=True)
    model.config.save_pretrained(out)
    model.generation_config.save_pretrained(out)
    save_onnx(model, out / "model.onnx")


def run_onnx(
    session: onnxruntime.InferenceSession, tensors: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The outputs for `tensors`, given in the graph's input order."""
    names = [value.name for value in session.get_inputs()]
    feed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    return [torch.from_numpy(array) for array in session.run(None, feed)]


@torch.no_grad()
def compare(
    model: LlamaForCausalLM, session: onnxruntime.InferenceSession, mask: torch.Tensor
) -> float:
    """Largest logit difference on real tokens over a prefill and the step that follows it."""
    batch = mask.shape[0]
    ids = torch.randint(4, model.config.vocab_size, mask.shape)
    worst, past = 0.0, empty_past(model, batch)
    torch_past: tuple[torch.Tensor, ...] = past
    for _ in range(2):
        new = ids.shape[1]
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -new:]
        expected = WithPast(model)(ids, mask, positions, *torch_past)
        got = run_onnx(session, [ids, mask, positions, *past])
        real = mask[:, -new:].bool()
        worst = max(worst, float((expected[0] - got[0])[real].abs().max()))
        torch_past, past = tuple(expected[1:]), tuple(got[1:])
        ids = expected[0][:, -1:].argmax(-1)
        mask = torch.cat([mask, torch.ones(batch, 1, dtype=torch.long)], dim=1)
    return worst


def check(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: pathlib.Path) -> None:
    """Compares ONNX Runtime with torch, then prints samples; raises where they differ."""
    session = onnxruntime.InferenceSession(
        str(out / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    padded = torch.ones(2, 12, dtype=torch.long)
    padded[1, :5] = 0
    for name, mask in (("batch 1", torch.ones(1, 12, dtype=torch.long)), ("left-padded", padded)):
        worst = compare(model, session, mask)
        print(f"{name}: ONNX Runtime and torch differ by at most {worst:.2e}")
        if not worst < TOLERANCE:
            raise SystemExit(f"{name}: the export is wrong, logits differ by {worst:.2e}")
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{out.name}: {size / 1e6:.2f} MB")
    for prompt in PROMPTS:
        for options in ({"do_sample": False}, {"do_sample": True, "temperature": 0.8}):
            ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
            told = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=300,
                pad_token_id=1,
                **options,
            )
            print(f"--- {options}\n{tokenizer.decode(told[0], skip_special_tokens=True)}")
