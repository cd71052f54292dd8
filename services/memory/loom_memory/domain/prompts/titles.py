"""A conversation's title."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

TITLE: Final = Prompt(
    "titles",
    "conversation",
    "1",
    "You give a conversation a title of at most eight words, in the language that it is held in.\n"
    + FENCE_RULE
    + "\nSay what it is about, and nothing else: no quotation marks, no full stop, no names of secrets.",
)

PROMPTS: Final = (TITLE,)
