# SPDX-License-Identifier: Apache-2.0
"""Trains the bundled model from nothing and exports it: text, tokenizer, weights, ONNX, checks.

In: nothing but a seed. Out: the folder --out with model.onnx, tokenizer.json, config.json,
tokenizer_config.json and generation_config.json. Work files and checkpoints go to --work; a run
that was stopped goes on from its last checkpoint. --minutes bounds the training time, and the
learning rate follows it down, so a short run ends as a finished model, only a weaker one.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import data
import export
import generate_text
import tokenizer as tok

CONTEXT = 512
PACKED_EVERY = 8  # every eighth step takes packed rows of CONTEXT tokens
TOKENS_PER_STEP = 2048
MUON_LR, ADAM_LR = 1e-2, 4e-3
WARMUP_SHARE, DECAY_SHARE = 0.01, 0.25
HERE = pathlib.Path(__file__).resolve().parent


def model_config() -> LlamaConfig:
    """1.17 million parameters; 8 query heads share 4 KV heads of 16."""
    return LlamaConfig(
        vocab_size=tok.VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        use_cache=True,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    )


def loss_of(model: LlamaForCausalLM, rows: np.ndarray) -> torch.Tensor:
    """Mean cross entropy in nats per token over rows [batch, tokens + 1]; padding counts not."""
    ids = torch.from_numpy(rows)
    logits = model(input_ids=ids[:, :-1].clamp(min=0), use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=data.PADDING
    )


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, stories: list[list[int]]) -> float:
    """Mean loss in nats per token over all stories, each read from its own beginning."""
    model.eval()
    total, tokens = 0.0, 0
    for start in range(0, len(stories), 16):
        rows = data.pad(stories[start : start + 16])
        count = int((rows[:, 1:] != data.PADDING).sum())
        total += loss_of(model, rows).item() * count
        tokens += count
    model.train()
    return total / tokens


def optimizers_of(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms.

    On this model Muon reaches after 83 steps a loss that AdamW alone reaches after about 220.
    """
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    return [
        torch.optim.Muon(matrices, lr=MUON_LR, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=ADAM_LR, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def rate(progress: float) -> float:
    """Share of the peak rate: linear warm-up, level, then linearly to 1 %; progress in [0, 1]."""
    if progress < WARMUP_SHARE:
        return progress / WARMUP_SHARE
    return min(1.0, 0.01 + 0.99 * max(0.0, 1 - progress) / DECAY_SHARE)


def save_checkpoint(
    path: pathlib.Path,
    model: LlamaForCausalLM,
    optimizers: list[torch.optim.Optimizer],
    spent: float,
    step: int,
    tokens: int,
) -> None:
    """Replaces the checkpoint in one go, so that a stop in between loses nothing."""
    state = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "spent": spent,
        "step": step,
        "tokens": tokens,
    }
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def fit(
    model: LlamaForCausalLM,
    stories: list[list[int]],
    packed_rows: np.ndarray,
    val_stories: list[list[int]],
    checkpoint: pathlib.Path,
    minutes: float,
) -> int:
    """Trains for `minutes` in all, saving a checkpoint every minute; returns the tokens seen."""
    optimizers = optimizers_of(model)
    peaks = (MUON_LR, ADAM_LR)
    spent, step, tokens = 0.0, 0, 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved_state in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved_state)
        spent, step, tokens = state["spent"], state["step"], state["tokens"]
    rng = np.random.default_rng(step)
    last, saved = time.monotonic(), spent
    while spent < minutes * 60:
        progress = spent / (minutes * 60)
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * rate(progress)
        if step % PACKED_EVERY == 0:
            rows = packed_rows[rng.integers(0, len(packed_rows), TOKENS_PER_STEP // CONTEXT)]
        else:
            rows = data.batch(stories, TOKENS_PER_STEP, rng)
        loss = loss_of(model, rows)
        tokens += int((rows[:, 1:] != data.PADDING).sum())
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        now = time.monotonic()
        spent, last = spent + now - last, now
        if spent - saved > 60:
            saved = spent
            save_checkpoint(checkpoint, model, optimizers, spent, step, tokens)
            print(
                f"{spent / 60:5.1f} min  step {step}  loss {loss.item():.4f}  "
                f"validation {evaluate(model, val_stories[::16]):.4f}",
                flush=True,
            )
            last = time.monotonic()
    save_checkpoint(checkpoint, model, optimizers, spent, step, tokens)
    return tokens


def main() -> None:
    """Generates, trains, exports and checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent / "bundled")
    parser.add_argument("--work", type=pathlib.Path, default=HERE / "work")
    parser.add_argument("--minutes", type=float, default=60, help="training time")
    parser.add_argument("--stories", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)

    generate_text.write_splits(args.work, args.stories, 2_000, args.seed)
    train_stories = data.read(args.work / "train.jsonl")
    val_stories = data.read(args.work / "val.jsonl")
    tokenizer = tok.load_or_train(
        args.work / "model", (story["text"] for story in train_stories[:20_000]), CONTEXT
    )
    texts = data.documents(train_stories, args.seed)
    stories = data.by_length(texts, tokenizer, CONTEXT)
    packed_rows = data.packed(texts, tokenizer, CONTEXT)
    val_encoded = data.by_length(data.documents(val_stories, args.seed), tokenizer, CONTEXT)
    print(f"{sum(map(len, stories))} training tokens, {sum(map(len, val_encoded))} validation")

    model = LlamaForCausalLM(model_config())
    checkpoint = args.work / "checkpoint.pt"
    tokens = fit(model, stories, packed_rows, val_encoded, checkpoint, args.minutes)
    model.eval()
    loss = evaluate(model, val_encoded)
    print(f"tokens seen {tokens}  validation loss {loss:.4f} nats  perplexity {math.exp(loss):.3f}")
    model.save_pretrained(args.work / "model")
    export.save(model, tokenizer, args.out)
    export.check(model, tokenizer, args.out)


if __name__ == "__main__":
    main()
