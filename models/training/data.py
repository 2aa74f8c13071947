# SPDX-License-Identifier: Apache-2.0
"""Stories as rows of token ids.

A document is BOS text EOS, or, for a fifth of the stories, BOS USER request ASSISTANT text EOS.
Most batches hold one document a row, so that the only names in sight are the story's own: with
packed rows alone, the model had not learned to keep to them after 7 million tokens. Packed rows,
in which whole documents follow each other, teach the full context. Every row begins with BOS.
"""

from __future__ import annotations

import json
import pathlib
import random

import numpy as np
from transformers import PreTrainedTokenizerFast

import tokenizer as tok

REQUEST_SHARE = 0.2
PADDING = -100  # what cross_entropy ignores


def read(path: pathlib.Path) -> list[dict[str, str]]:
    """The stories that generate_text.py wrote."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def documents(told: list[dict[str, str]], seed: int) -> list[str]:
    """Each story as text with its special tokens; the seed decides which have their request."""
    rng = random.Random(seed)
    return [
        f"{tok.BOS}{tok.USER}{story['request']}{tok.ASSISTANT}{story['text']}{tok.EOS}"
        if rng.random() < REQUEST_SHARE
        else f"{tok.BOS}{story['text']}{tok.EOS}"
        for story in told
    ]


def by_length(
    texts: list[str], tokenizer: PreTrainedTokenizerFast, context: int
) -> list[list[int]]:
    """Token ids of each document, at most context + 1, the short ones first."""
    encoded: list[list[int]] = []
    for start in range(0, len(texts), 1000):
        chunk = tokenizer(texts[start : start + 1000], add_special_tokens=False)["input_ids"]
        encoded.extend(ids[: context + 1] for ids in chunk)
    return sorted(encoded, key=len)


def pad(documents: list[list[int]]) -> np.ndarray:
    """Documents sorted by length as rows [documents, length], ended with PADDING."""
    padded = np.full((len(documents), len(documents[-1])), PADDING, dtype=np.int64)
    for row, ids in zip(padded, documents, strict=True):
        row[: len(ids)] = ids
    return padded


def batch(encoded: list[list[int]], tokens: int, rng: np.random.Generator) -> np.ndarray:
    """Documents of about one length, about `tokens` in all; [rows, length], ended with PADDING."""
    first = int(rng.integers(0, len(encoded)))
    count = max(1, tokens // len(encoded[first]))
    return pad(encoded[first : first + count])


def packed(texts: list[str], tokenizer: PreTrainedTokenizerFast, context: int) -> np.ndarray:
    """Token ids [num_rows, context + 1]: inputs are [:, :-1], targets [:, 1:]."""
    full: list[list[int]] = []
    row: list[int] = []
    for start in range(0, len(texts), 1000):
        chunk = tokenizer(texts[start : start + 1000], add_special_tokens=False)["input_ids"]
        for ids in chunk:
            row.extend(ids)
            if len(row) > context:
                full.append(row[: context + 1])
                row = []
    return np.array(full, dtype=np.int64)
