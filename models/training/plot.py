# SPDX-License-Identifier: Apache-2.0
"""Plots: what happens in a story, read from plots/*.txt.

A file holds plots, each with a name, the topic of the request "Tell me a story about ...", the kind
of hero (child, animal or any), and its beats, which are told in order:

    == lost toy
    topic: a lost {o.noun}
    heroes: child

    + One alternative of the first beat, which goes on
      in an indented line.
    + Another alternative.

    + The second beat, which an empty alternative may skip.
    +

Slots: h hero, f friend, f2 another, p a grown-up of the family, n neighbour, w somebody with a
trade, pet a small animal, o and q things, place; the rest are plain words (see stories.cast).
"""

from __future__ import annotations

import dataclasses
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "plots"
HEROES = ("child", "animal", "any")


@dataclasses.dataclass(frozen=True)
class Plot:
    """Each beat is a tuple of alternative templates (see grammar.render)."""

    name: str
    topic: str
    heroes: str
    beats: tuple[tuple[str, ...], ...]


def _beat(block: str) -> tuple[str, ...]:
    """The alternatives of one block of "+" lines."""
    unfolded = block.replace("\n  ", " ")
    lines = unfolded.splitlines()
    if not all(line.startswith("+") for line in lines):
        raise ValueError(f'a beat whose lines do not all begin with "+": {block!r}')
    return tuple(line[1:].strip() for line in lines)


def _plot(section: str) -> Plot:
    """One plot: its head, then its beats, with empty lines between."""
    head, *blocks = section.strip().split("\n\n")
    name, topic, heroes = head.splitlines()
    plot = Plot(
        name.strip(),
        topic.removeprefix("topic: "),
        heroes.removeprefix("heroes: "),
        tuple(_beat(block) for block in blocks),
    )
    if plot.heroes not in HEROES:
        raise ValueError(f"plot {plot.name!r}: heroes must be one of {HEROES}")
    return plot


def read_all() -> tuple[Plot, ...]:
    """Every plot of every file, in the order of the file names."""
    return tuple(
        _plot(section)
        for path in sorted(FOLDER.glob("*.txt"))
        for section in path.read_text(encoding="utf-8").split("\n== ")[1:]
    )
