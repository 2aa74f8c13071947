# SPDX-License-Identifier: Apache-2.0
"""Writes the training and validation stories.

Out: train.jsonl and val.jsonl, one {"request", "text"} a line. The same seed gives the same bytes.
The two splits use different seeds, no story occurs twice, and none of validation is in training.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random

import stories


def generate(seed: int, count: int, taken: set[str]) -> list[stories.Story]:
    """`count` stories whose texts are not in `taken`; adds them to it."""
    rng = random.Random(seed)
    found: list[stories.Story] = []
    while len(found) < count:
        story = stories.tell(rng)
        if story.text not in taken:
            taken.add(story.text)
            found.append(story)
    return found


def write(path: pathlib.Path, told: list[stories.Story]) -> None:
    """One JSON object a line."""
    with path.open("w", encoding="utf-8") as file:
        for story in told:
            file.write(json.dumps({"request": story.request, "text": story.text}) + "\n")


def write_splits(out: pathlib.Path, train: int, val: int, seed: int) -> None:
    """Writes both splits; validation is drawn first, and training avoids it."""
    out.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    write(out / "val.jsonl", generate(seed + 1, val, taken))
    write(out / "train.jsonl", generate(seed, train, taken))


def main() -> None:
    """Writes both splits to --out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder to write to")
    parser.add_argument("--train", type=int, default=120_000, help="stories to train on")
    parser.add_argument("--val", type=int, default=2_000, help="stories to validate on")
    parser.add_argument("--seed", type=int, default=1, help="validation uses seed + 1")
    args = parser.parse_args()
    write_splits(args.out, args.train, args.val, args.seed)


if __name__ == "__main__":
    main()
