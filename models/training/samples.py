# SPDX-License-Identifier: Apache-2.0
"""Measures how well the bundled model writes: sampled stories against the text it learned from.

Three shares, each beside the same share for held-out stories: words that the training text does not
have (misspelled), word triples that it does not have (with names made alike), and people's names
that appear for the first time inside a story's last half (a hero who changes names).
"""

from __future__ import annotations

import argparse
import pathlib
import re

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import data
import lexicon

NAMES = frozenset((*lexicon.GIRLS, *lexicon.BOYS, *lexicon.ANIMAL_NAMES))
WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*|[.,!?\"]")


def words(text: str) -> list[str]:
    """Words and punctuation marks; possessives count as the name."""
    return [word.removesuffix("'s") for word in WORD.findall(text)]


def triples(text: str) -> list[tuple[str, ...]]:
    """Neighbouring words, three at a time, with every name written as NAME."""
    alike = ["NAME" if word in NAMES else word.lower() for word in words(text)]
    return list(zip(alike, alike[1:], alike[2:], strict=False))


def late_names(text: str) -> int:
    """How many names the second half uses that the first half does not."""
    found = words(text)
    half = len(found) // 2
    return len((set(found[half:]) & NAMES) - set(found[:half]))


@torch.no_grad()
def sample(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompt: str,
    count: int,
    temperature: float,
) -> list[str]:
    """`count` stories that begin with `prompt`; one when greedy (temperature 0)."""
    ids = tokenizer([prompt] * (count if temperature else 1), return_tensors="pt")["input_ids"]
    options = {"do_sample": True, "temperature": temperature} if temperature else {}
    told = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=320,
        pad_token_id=tokenizer.eos_token_id,
        **{"do_sample": False, **options},
    )
    return [tokenizer.decode(row, skip_special_tokens=True) for row in told]


def report(told: list[str], known_words: set[str], known_triples: set[tuple[str, ...]]) -> str:
    """The three shares of a set of stories, as one line."""
    all_words = [word for text in told for word in words(text)]
    all_triples = [triple for text in told for triple in triples(text)]
    misspelled = sum(word not in known_words for word in all_words) / len(all_words)
    unseen = sum(triple not in known_triples for triple in all_triples) / len(all_triples)
    late = sum(map(late_names, told)) / len(told)
    return (
        f"{misspelled:.2%} unknown words, {unseen:.2%} unseen triples, "
        f"{late:.2f} late names a story"
    )


def main() -> None:
    """Prints the shares for held-out text and for samples, then some of the samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="train.py's --work")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(args.work / "model")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.work / "model")
    train = [story["text"] for story in data.read(args.work / "train.jsonl")]
    known_words = {word for text in train[:20_000] for word in words(text)}
    known_triples = {triple for text in train[:20_000] for triple in triples(text)}
    held_out = [story["text"] for story in data.read(args.work / "val.jsonl")][:500]
    print(f"held-out stories: {report(held_out, known_words, known_triples)}")
    for temperature in (0.0, 0.5, 0.8, 1.0):
        told = sample(model, tokenizer, args.prompt, args.count, temperature)
        print(f"temperature {temperature}: {report(told, known_words, known_triples)}")
        for text in told[:3]:
            print(f"    {text}")


if __name__ == "__main__":
    main()
