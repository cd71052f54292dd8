"""Finds the names in memories: with a model where one is served and answers, else by their form."""

import logging
from collections.abc import Sequence
from typing import Final

from loom_common.errors import LoomError
from loom_common.json_text import parse_object
from loom_memory.app.llm import LlmPort
from loom_memory.domain.entities import Mention, mentions_from_json, named_in
from loom_memory.domain.fencing import fenced
from loom_memory.domain.prompts.entities import NAMES

logger = logging.getLogger(__name__)

FEATURE: Final = "entities"
BATCH: Final = 20
"""Memories of one call."""

_TEXT_CHARS: Final = 1_500
_TOKENS: Final = 2_048
_TIMEOUT_S: Final = 60.0


class Naming:
    """Finds names."""

    def __init__(self, llm: LlmPort) -> None:
        self._llm = llm

    async def names(self, texts: Sequence[str], *, with_model: bool) -> list[list[Mention]]:
        """Returns what each text names, in order. Never raises for a model: a text it fails for is read by form.

        Args:
            texts: At most `BATCH`, of one writer.
            with_model: Whether a model may be asked, for whom the running call says.
        """
        by_form = [named_in(text) for text in texts]
        if not with_model:
            return by_form
        told = "\n".join(f"[{number}] {text[:_TEXT_CHARS]}" for number, text in enumerate(texts, start=1))
        try:
            answer = await self._llm.complete(
                NAMES.text,
                fenced("memories", told),
                max_tokens=_TOKENS,
                json=True,
                feature=FEATURE,
                prompt=NAMES,
                timeout_s=_TIMEOUT_S,
            )
        except LoomError as error:
            logger.warning("names_by_form", extra={"memories": len(texts), "reason": error.reason.value})
            return by_form
        held = parse_object(answer.text).value
        if held is None or not isinstance(held.get("entities"), list) or answer.fake:
            return by_form
        found = mentions_from_json(held["entities"], len(texts))
        return [found.get(place, by_form[place]) for place in range(len(texts))]

    async def has_model(self) -> bool:
        """Says whether a model is served whose words count."""
        try:
            return not (await self._llm.served()).fake
        except LoomError:
            return False
