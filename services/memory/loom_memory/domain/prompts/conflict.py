"""Which of two memories holds that contradict each other."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

JUDGE: Final = Prompt(
    "conflict",
    "judge",
    "1",
    "You judge two remembered statements of which a rule found that both cannot hold.\n" + FENCE_RULE + "\n"
    "Each statement stands with the time from which it was told. Decide:\n"
    "- `keep_newer`: the newer one revises or contradicts the older one about the same thing; only the newer holds.\n"
    "- `keep_both`: they are about different things, different times or different cases, or one adds to the other.\n"
    "- `keep_older`: the newer one is plainly a mistake, and says so or cannot be.\n"
    "- `merge`: only together they say what holds; then `value` is one sentence with what both say, in their language, "
    "with no name and no number that stands in neither.\n"
    "Where you are not sure, answer `keep_both`.\n"
    "Answer with exactly one JSON object and nothing else: "
    '{"resolution": "keep_newer", "value": "", "why": "in at most twelve words"}.',
)

PROMPTS: Final = (JUDGE,)
