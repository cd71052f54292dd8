"""What several memories say together."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

_ANSWER: Final = (
    'Answer with exactly one JSON object and nothing else: {"notes": [{"text": "...", "sources": [1, 3]}]}. `sources` '
    'are the numbers of the memories that it rests on. Where there is nothing to say, answer {"notes": []}.'
)

OBSERVATIONS: Final = Prompt(
    "mining",
    "observations",
    "1",
    "You note what several memories of one person show together and none says alone: habits, preferences, changes.\n"
    + FENCE_RULE
    + "\nEach memory stands behind its number and its time. Write at most five observations, each one whole sentence "
    "that names whom it is about, and each resting on at least two memories. Do not repeat a memory and do not guess.\n"
    + _ANSWER,
)

REFLECTION: Final = Prompt(
    "mining",
    "reflection",
    "1",
    "You sum up a session that has ended, for whoever goes on with it.\n"
    + FENCE_RULE
    + "\nEach memory stands behind its number and its time. Write one note of two to five sentences: what it was "
    "about, what was decided, what is open. Say only what the memories say, and keep names and numbers exactly.\n"
    + _ANSWER,
)

DIGEST: Final = Prompt(
    "mining",
    "digest",
    "1",
    "You sum up what was remembered on one day.\n"
    + FENCE_RULE
    + "\nEach memory stands behind its number and its time. Write one note of two to six sentences with what matters "
    "most. Say only what the memories say, and keep names and numbers exactly.\n" + _ANSWER,
)

PROMPTS: Final = (OBSERVATIONS, REFLECTION, DIGEST)
