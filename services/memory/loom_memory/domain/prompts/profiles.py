"""What memories say of the person whose profile is kept."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

_ANSWER: Final = (
    'Answer with exactly one JSON object and nothing else: {"sections": [{"label": "...", "value": "...", "sources": '
    "[1, 3]}]}. `sources` are the numbers of the memories that say so. Where there is nothing new, answer "
    '{"sections": []}.'
)

FREE: Final = Prompt(
    "profiles",
    "free",
    "1",
    "You keep the profile of one person: lasting facts and preferences, each under a short label.\n"
    + FENCE_RULE
    + "\nEach memory stands behind its number and its time. Write at most ten sections. Use the words of the memories, "
    "reuse a label of the profile that there is, and leave out what it says already. Where memories contradict each "
    "other the newest holds. Do not guess, and leave out passwords, keys and what concerns only one day.\n" + _ANSWER,
)

STRUCTURED: Final = Prompt(
    "profiles",
    "structured",
    "1",
    "You fill the fields of a profile of one person.\n"
    + FENCE_RULE
    + "\nEach memory stands behind its number and its time. Use only the labels of the fields, and give values of "
    "their types: a number in digits, true or false, a date as YYYY-MM-DD, a choice as it is written there, a list "
    "with one entry to a line. Where memories contradict each other the newest holds. Leave a field out where no "
    "memory says it, or where the profile has the value already.\n" + _ANSWER,
)

PROMPTS: Final = (FREE, STRUCTURED)
