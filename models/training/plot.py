# SPDX-License-Identifier: Apache-2.0
"""What a plot is: a name, a topic for the request "Tell me a story about ...", and its beats."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Plot:
    """Beats are told in order; each is a tuple of alternative templates (see grammar.render)."""

    name: str
    topic: str
    beats: tuple[tuple[str, ...], ...]
    heroes: str = "child"  # "child", "animal" or "any"
