# SPDX-License-Identifier: Apache-2.0
"""Stories as rows of token ids.

A document is BOS text EOS, or, for a fifth of the stories, BOS USER request ASSISTANT text EOS.
Whole documents follow each other in a row; every row begins with BOS, as every prompt will.
"""

from __future__ import annotations

import json
import pathlib
import random

import numpy as np
from transformers import PreTrainedTokenizerFast

import tokenizer as tok

REQUEST_SHARE = 0.2


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


def rows(texts: list[str], tokenizer: PreTrainedTokenizerFast, context: int) -> np.ndarray:
    """Token ids, uint16 [num_rows, context + 1]: inputs are [:, :-1], targets [:, 1:]."""
    packed: list[list[int]] = []
    row: list[int] = []
    for start in range(0, len(texts), 1000):
        chunk = tokenizer(texts[start : start + 1000], add_special_tokens=False)["input_ids"]
        for ids in chunk:
            row.extend(ids)
            if len(row) > context:
                packed.append(row[: context + 1])
                row = []
    return np.array(packed, dtype=np.uint16)
