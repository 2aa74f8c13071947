# SPDX-License-Identifier: Apache-2.0
"""The words of the stories: who, what and where, with the forms that sentences need.

Every class holds one noun and answers the forms by attribute, so that templates can say
{h.his} or {o.a}. Agreement is decided here, once, and never in a template.
"""

from __future__ import annotations

import dataclasses
import random

# Few names, so that a small model soon learns to keep to the ones that a story began with.
GIRLS = "Lily Mia Anna Sara Emma Lucy Rosie Nora Ella Zoe Ruby Clara".split()
BOYS = "Tom Ben Max Sam Tim Jack Leo Noah Finn Oscar Luke Henry".split()
ANIMAL_NAMES = "Pip Rusty Bella Coco Fern Hazel Milo Patch Penny Snowy Toby Willow".split()
FEMALE_NAMES = frozenset("Bella Coco Fern Hazel Penny Snowy Willow".split())
ANIMALS = (
    "fox rabbit bear mouse squirrel hedgehog duck owl frog otter badger deer beaver turtle "
    "mole lamb kitten puppy pony hen goat raccoon"
).split()
PETS = (
    "kitten|puppy|bird|rabbit|duckling|mouse|turtle|hedgehog|lamb|squirrel|baby owl|baby fox"
).split("|")

COLOURS = "red blue green yellow orange purple pink white brown golden".split()
TOYS = (
    "ball|kite|doll|truck|drum|robot|puzzle|hat|scarf|train|boat|balloon|teddy bear|toy car|"
    "toy plane|toy horse|storybook|music box|paint box|whistle|yo-yo|jump rope|bucket|umbrella|"
    "toy dinosaur|wooden duck|paper crown|bracelet|necklace|blanket|flute|marble"
).split("|")
LOOKS = "little big shiny soft old new pretty tiny round bright lovely special".split()
TRAITS = (
    "little young kind clever brave cheerful curious quiet happy friendly gentle playful shy "
    "careful bright polite"
).split()
FOODS = (
    "apple pie|cookies|soup|bread|pancakes|cherry cake|carrot soup|cheese bread|waffles|muffins|"
    "popcorn|noodles|blueberry pie|corn bread|honey cake|rice|porridge|sandwiches|oatmeal|toast"
).split("|")
FRUITS = "apples pears plums cherries berries oranges grapes peaches nuts bananas".split()
PLANTS = "sunflower rose tulip daisy pumpkin tomato bean strawberry carrot apple".split()
WEATHER = "sunny|warm|bright|windy|cool|cloudy|lovely|quiet|fine|fresh".split("|")
HOBBIES = (
    "paint pictures|climb trees|sing songs|read books|run in the grass|dance in the kitchen|"
    "build tall towers|look at the stars|pick flowers|play with a ball|tell funny stories|"
    "splash in puddles|collect smooth stones|draw animals|help in the garden|play hide and seek|"
    "ride on the swing|watch the clouds|listen to the birds|bake cookies|count the ducks"
).split("|")
ANIMAL_HOBBIES = (
    "play in the leaves|swim in the pond|look at the moon|roll down the hill|collect acorns|"
    "sing in the rain|chase butterflies|sleep in the sun|dig deep holes|hop over logs|"
    "listen to stories|explore the woods|count the stars|play by the stream"
).split("|")


@dataclasses.dataclass(frozen=True)
class Being:
    """A person or animal: a name or a noun phrase, what it is, and its pronouns."""

    name: str
    kind: str
    female: bool

    def __str__(self) -> str:
        return self.name

    @property
    def he(self) -> str:
        return "she" if self.female else "he"

    @property
    def him(self) -> str:
        return "her" if self.female else "him"

    @property
    def his(self) -> str:
        return "her" if self.female else "his"

    @property
    def himself(self) -> str:
        return "herself" if self.female else "himself"

    @property
    def He(self) -> str:  # noqa: N802 (the capital is the meaning)
        return self.he.capitalize()

    @property
    def His(self) -> str:  # noqa: N802
        return self.his.capitalize()

    @property
    def Name(self) -> str:  # noqa: N802
        """The name as a form of address: "Mom", "Grandpa"."""
        return self.name[0].upper() + self.name[1:]


@dataclasses.dataclass(frozen=True)
class Thing:
    """A countable thing: its noun and the adjective that goes with it through the story."""

    noun: str
    adjective: str

    def __str__(self) -> str:
        return self.noun

    @property
    def full(self) -> str:
        return f"{self.adjective} {self.noun}"

    @property
    def a(self) -> str:
        return f"a {self.full}"

    @property
    def the(self) -> str:
        return f"the {self.full}"


@dataclasses.dataclass(frozen=True)
class Place:
    """A place with its own preposition: "in the park", "at the beach"."""

    preposition: str
    noun: str

    def __str__(self) -> str:
        return f"the {self.noun}"

    @property
    def at(self) -> str:
        return f"{self.preposition} the {self.noun}"


PLACES = tuple(
    Place(*entry.split(":"))
    for entry in (
        "in:park in:garden in:yard in:meadow in:woods in:forest in:field at:beach at:farm "
        "by:river by:lake by:pond on:hill at:playground at:market in:orchard"
    ).split()
)
WILD_PLACES = tuple(
    p for p in PLACES if p.noun in "meadow woods forest field river lake pond hill orchard".split()
)
INDOORS = (
    "under the bed|behind the sofa|in the toy box|on the shelf|in the kitchen|under the table|"
    "behind the door|in the closet|next to the window|under the stairs|in the basket|"
    "behind the curtain|in the bathroom|under the pillow|in the hall"
).split("|")
OUTDOORS = (
    "under a tree|behind a big rock|in the tall grass|near the gate|under a bush|by the fence|"
    "behind the shed|in a pile of leaves|next to the bench|under the old bridge|beside the path|"
    "in the flower bed|near the well|behind the barn"
).split("|")
ADULTS = (
    Being("the baker", "baker", False),
    Being("the farmer", "farmer", False),
    Being("the teacher", "teacher", True),
    Being("the doctor", "doctor", True),
    Being("the mail carrier", "mail carrier", False),
    Being("the shopkeeper", "shopkeeper", True),
    Being("the gardener", "gardener", False),
    Being("the fisherman", "fisherman", False),
    Being("the librarian", "librarian", True),
    Being("the painter", "painter", True),
)
NEIGHBOURS = tuple(
    Being(f"{title} {surname}", "neighbor", title == "Mrs.")
    for title in ("Mr.", "Mrs.")
    for surname in ("Brown", "Green", "Hill", "Bell", "Wood", "Cook", "Lane", "Rose")
)
FAMILY = tuple(
    Being(name, name, name in ("mom", "grandma", "aunt", "big sister"))
    for name in ("mom", "dad", "grandma", "grandpa", "mom", "dad", "aunt", "uncle")
)
ANIMAL_FAMILY = tuple(
    Being(name, name, name in ("mother", "grandmother"))
    for name in ("mother", "father", "mother", "grandmother", "grandfather")
)


def child(rng: random.Random, taken: set[str]) -> Being:
    """A girl or boy whose name nobody else in the story has."""
    while True:
        female = rng.random() < 0.5
        name = rng.choice(GIRLS if female else BOYS)
        if name not in taken:
            taken.add(name)
            return Being(name, "girl" if female else "boy", female)


def animal(rng: random.Random, taken: set[str]) -> Being:
    """An animal with a name; no other in the story has that name or is of that kind."""
    while True:
        name, kind = rng.choice(ANIMAL_NAMES), rng.choice(ANIMALS)
        female = name in FEMALE_NAMES or kind == "hen"
        if name not in taken and kind not in taken:
            taken.update((name, kind))
            return Being(name, kind, female)


def thing(rng: random.Random, taken: set[str]) -> Thing:
    """A toy or small belonging, with a colour or another adjective."""
    while True:
        noun = rng.choice(TOYS)
        if noun not in taken:
            taken.add(noun)
            return Thing(noun, rng.choice(COLOURS if rng.random() < 0.6 else LOOKS))
