"""Names in memories."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

NAMES: Final = Prompt(
    "entities",
    "names",
    "1",
    "You list who and what memories name, so that memories about the same are found together.\n" + FENCE_RULE + "\n"
    "Each memory stands behind its number. List people, organisations, places, products, events and named things, by "
    "their names as they are written, and other names of the same that the memory gives. Leave out pronouns, dates, "
    "numbers and common nouns.\n"
    "Answer with exactly one JSON object and nothing else: "
    '{"entities": [{"memory": 1, "name": "...", "kind": "person", "aliases": []}]}. `kind` is one of person, '
    "organisation, place, product, event, thing.",
)

PROMPTS: Final = (NAMES,)
