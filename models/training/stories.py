# SPDX-License-Identifier: Apache-2.0
"""Puts a story together: a cast, an opening, the beats of one plot, and the request for it."""

from __future__ import annotations

import dataclasses
import random

import grammar
import lexicon
import plot

PLOTS = plot.read_all()

SKILLS = (
    "ride a bike|swim|skate|whistle|play the piano|play the drum|tie {h.his} shoes|jump rope|"
    "bake bread|climb a rope|read|write {h.his} name|dance|sing|paint|catch a ball|fly a kite|"
    "swing all alone|tell the time|do a handstand"
).split("|")
GOALS = (
    "the sea|the big city|the Blue Lake|the high mountain|the end of the rainbow|the waterfall|"
    "the Great Old Tree|the valley of flowers|the snow|the lighthouse|the island of birds"
).split("|")
BREAKABLE = "vase|cup|plate|lamp|clock|mirror|bowl|teapot|window|glass bird".split("|")
ROUTES = (
    "past the barn|over the bridge|around the pond|down the hill|along the river|through the "
    "tall grass|up the hill"
).split("|")

CHILD_OPENINGS = (
    "Once upon a time, there was a {trait} {h.kind} [named|called] {h}.",
    "Once upon a time, in a [small|quiet|sunny|pretty|little] [village|town] [by the sea|near the "
    "hills|by a river|near the woods], there lived a {trait} {h.kind} named {h}.",
    "Once upon a time, a {trait} {h.kind} named {h} lived [with {h.his} {p}|in a {colour} house|in "
    "a small house] [near the sea|by the woods|in a little town|at the end of a long road].",
    "Once there was a {trait} {h.kind} who [loved to {hobby}|liked to {hobby}]. {h.His} name was "
    "{h}.",
    "There once was a {h.kind} [named|called] {h}, who lived [with {h.his} {p}|near the woods|by a "
    "lake|near the river].",
    "{h} was a {trait} {h.kind}. {h.He} lived with {h.his} {p} in a [small|little|big|{colour}] "
    "house.",
    "Long ago, in a [small|quiet] village, lived a {h.kind} named {h}.",
    "In a {colour} house [near the park|by the sea|near the market|on a hill] lived a {trait} "
    "{h.kind} named {h}.",
    "{h} lived [near the sea|in a small town|on a farm] with {h.his} {p}[| and a {pet.kind}].",
    "One day, a {trait} {h.kind} named {h} [woke up early|was playing {place.at}|was sitting "
    "{outdoor}].",
    "It was a {weather} day, and a {trait} {h.kind} named {h} was [happy|playing {place.at}].",
)
ANIMAL_OPENINGS = (
    "Once upon a time, there was a {trait} {h.kind} [named|called] {h}.",
    "Once upon a time, in a [green|deep|quiet|big] [forest|wood|meadow|valley], there lived a "
    "{trait} {h.kind} named {h}.",
    "Once there was a {trait} {h.kind} who [loved to {wild_hobby}|liked to {wild_hobby}]. {h.His} "
    "name was {h}.",
    "Deep in the [woods|forest] lived a {h.kind} [named|called] {h}.",
    "{h} was a {trait} {h.kind}. {h.He} lived [under an old tree|by the river|in the meadow] with "
    "{h.his} {p}.",
    "Long ago, a {trait} {h.kind} named {h} lived [by a quiet lake|in a green valley|on a hill].",
    "In the [middle of the forest|tall grass by the pond] lived a {trait} {h.kind} named {h}.",
)
CHILD_DETAILS = (
    "{h.He} loved to {hobby2}.",
    "{h} liked to {hobby2}[| with {h.his} {p}], and {h.he} loved {food}.",
    "{h.He} had [a {pet.kind} and|a big smile and|curly hair and] {q.a}.",
    "Every [morning|day|evening], {h.he} liked to {hobby2}.",
    "{h.His} [best friend|friend] was a {f.kind} named {f}.",
    "",
    "",
    "",
)
ANIMAL_DETAILS = (
    "{h.He} loved to {wild_hobby2}.",
    "{h.He} liked to {wild_hobby2}, and {h.he} liked to eat {fruit}.",
    "{h} had [a soft coat and bright eyes|a big heart|very quick feet|many friends].",
    "Every [morning|day|evening], {h.he} liked to {wild_hobby2}.",
    "",
    "",
)
ROLES = "pirates knights astronauts explorers sailors wizards".split()
MOODS = (
    "The sun was [shining|warm], and the birds were singing.",
    "A [soft|cool|warm] wind [blew through the trees|moved the leaves].",
    "[It had rained in the night, and everything smelled fresh|The sky was blue, without a single "
    "cloud|The air was clear and still].",
    "[Somewhere a dog barked|A bell rang far away|Bees hummed in the flowers].",
    "{h} [felt happy|was in a good mood|hummed a little song].",
    "It was going to be a day that {h} would [never forget|always remember].",
)
ENDINGS = (
    "The end.",
    "And they all lived happily ever after.",
    "[It was a good day|What a wonderful day it was].",
)
REQUESTS = (
    "Tell me a story about {topic}.",
    "Write a story about {topic}.",
    "Please tell me a short story about {topic}.",
    "I want to hear a story about {topic}.",
    "Can you tell me a story about {topic}?",
)


@dataclasses.dataclass(frozen=True)
class Story:
    """A story and the request that asks for it."""

    request: str
    text: str


def cast(rng: random.Random, chosen: plot.Plot) -> dict[str, object]:
    """Draws everyone and everything that a template may name; no two of them are the same."""
    taken: set[str] = set()
    is_animal = chosen.heroes == "animal" or (chosen.heroes == "any" and rng.random() < 0.5)
    being = lexicon.animal if is_animal else lexicon.child
    hero, friend, friend2 = being(rng, taken), being(rng, taken), being(rng, taken)
    pet = rng.choice([pet for pet in lexicon.PETS if pet not in taken])
    indoor, indoor2 = rng.sample(lexicon.INDOORS, 2)
    hobby, hobby2 = rng.sample(lexicon.HOBBIES, 2)
    wild_hobby, wild_hobby2 = rng.sample(lexicon.ANIMAL_HOBBIES, 2)
    return {
        "h": hero,
        "f": friend,
        "f2": friend2,
        "p": rng.choice(lexicon.ANIMAL_FAMILY if is_animal else lexicon.FAMILY),
        "n": rng.choice(lexicon.NEIGHBOURS),
        "w": rng.choice(lexicon.ADULTS)
        if not is_animal
        else lexicon.Being("the old owl", "owl", False),
        "pet": lexicon.Being(f"the {pet}", pet, False),
        "o": lexicon.thing(rng, taken),
        "q": lexicon.thing(rng, taken),
        "place": rng.choice(lexicon.WILD_PLACES if is_animal else lexicon.PLACES),
        "indoor": indoor,
        "indoor2": indoor2,
        "outdoor": rng.choice(lexicon.OUTDOORS),
        "hobby": hobby,
        "hobby2": hobby2,
        "wild_hobby": wild_hobby,
        "wild_hobby2": wild_hobby2,
        "trait": rng.choice(lexicon.TRAITS),
        "food": rng.choice(lexicon.FOODS),
        "fruit": rng.choice(lexicon.FRUITS),
        "plant": rng.choice(lexicon.PLANTS),
        "colour": rng.choice(lexicon.COLOURS),
        "weather": rng.choice(lexicon.WEATHER),
        "skill": rng.choice(SKILLS).format(h=hero),
        "goal": rng.choice(GOALS),
        "broken": rng.choice(BREAKABLE),
        "route": rng.choice(ROUTES),
        "role": rng.choice(ROLES),
        "housepet": rng.choice(("dog", "cat")),
    }


def tell(rng: random.Random) -> Story:
    """One story: opening, perhaps a detail, every beat of the plot, perhaps a closing line."""
    chosen = rng.choice(PLOTS)
    slots = cast(rng, chosen)
    is_animal = slots["h"].kind not in ("girl", "boy")  # type: ignore[attr-defined]
    mood = rng.choice(MOODS) if rng.random() < 0.2 else ""
    parts = [
        rng.choice(ANIMAL_OPENINGS if is_animal else CHILD_OPENINGS),
        rng.choice(ANIMAL_DETAILS if is_animal else CHILD_DETAILS),
        mood,
        *(rng.choice(beat) for beat in chosen.beats),
        rng.choice(ENDINGS) if rng.random() < 0.3 else "",
    ]
    text = " ".join(grammar.render(rng, part, slots) for part in parts if part)
    topic = grammar.render(rng, chosen.topic, slots)
    request = grammar.render(rng, rng.choice(REQUESTS).replace("{topic}", topic), slots)
    return Story(grammar.tidy(request), grammar.tidy(text))
