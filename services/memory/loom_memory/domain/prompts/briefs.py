"""A session's brief."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

BRIEF: Final = Prompt(
    "briefs",
    "session",
    "1",
    "You write what a working session leaves behind for whoever goes on with it, from its memories and from the end of "
    "its conversations, in their language.\n"
    + FENCE_RULE
    + "\nAt most 200 words, as short lines that begin with a dash: what was decided, what was done, what is open, what "
    "to do next. Say only what the data says; leave out a part that it says nothing of. No introduction, no secrets.",
)

PROMPTS: Final = (BRIEF,)
