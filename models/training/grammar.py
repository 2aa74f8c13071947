# SPDX-License-Identifier: Apache-2.0
"""Expands story templates into text.

In: a template such as "[One day|Then], {h} saw {o.a}." and the values of its slots.
Out: the sentence, with one alternative chosen from every bracket, articles and capitals set right.
Brackets nest. Slots are filled by str.format, so they may name attributes ({h.his}).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

_INNERMOST = re.compile(r"\[([^\[\]]*)\]")
_ARTICLE = re.compile(r"\b([Aa]) (?=([A-Za-z]+))")
_SENTENCE_START = re.compile(r"(^|[.!?] |\n)([a-z])")
# Vowel letters that sound like consonants; every other word follows its first letter.
_CONSONANT_SOUND = ("uni", "use", "one", "eu")


def choose(rng: random.Random, template: str) -> str:
    """Replaces every [a|b|c], innermost first, by one of its alternatives."""
    while True:
        template, replaced = _INNERMOST.subn(
            lambda match: rng.choice(match.group(1).split("|")), template, count=1
        )
        if not replaced:
            return template


def _article(match: re.Match[str]) -> str:
    word = match.group(2).lower()
    is_vowel = word[0] in "aeiou" and not word.startswith(_CONSONANT_SOUND)
    return match.group(1) + ("n " if is_vowel else " ")


def tidy(text: str) -> str:
    """Sets a/an by the word that follows, single spaces, and capitals at sentence starts.

    A capital is not set after a closing quotation mark, because there the sentence often goes
    on: "Where is it?" asked Tom.
    """
    text = re.sub(r" +", " ", text).strip()
    text = re.sub(r" ?\n ?", "\n", text)
    text = _ARTICLE.sub(_article, text)
    return _SENTENCE_START.sub(lambda m: m.group(1) + m.group(2).upper(), text)


def render(rng: random.Random, template: str, slots: Mapping[str, object]) -> str:
    """Chooses alternatives first and fills slots after, so that slot values need no escaping."""
    return choose(rng, template).format(**slots)
