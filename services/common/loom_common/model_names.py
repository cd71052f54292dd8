"""What names of models have in common: the same model goes by several."""

import re
from typing import Final

# A dated release, as openai and anthropic write it: -2026-09-22, -20251001, @20251001, and the name of the newest.
_RELEASE: Final = re.compile(r"(?:[-@](?:\d{4}-\d{2}-\d{2}|\d{8})|-latest)\Z")


def base_name(model: str) -> str:
    """Returns a model's name without the path that servers put before it and without its release.

    So `openai/gpt-6-luna`, `gpt-6-luna-2026-09-22` and `gpt-6-luna` are one; `gpt-6-luna-mini` is another.
    """
    return _RELEASE.sub("", model.rpartition("/")[2])


def same_model(one: str, other: str) -> bool:
    """Returns whether two names stand for one model."""
    return base_name(one) == base_name(other)
