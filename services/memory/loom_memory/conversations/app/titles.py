"""Has a model title conversations that have grown, in place of the words that they began with."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import BudgetExhausted, LoomError
from loom_common.features import Feature
from loom_common.leases import Lease
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.held import HOLDS
from loom_common.provenance import principal_of
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes, WorkerPass
from loom_memory.conversations.app.conversations import Conversations
from loom_memory.conversations.domain.conversations import Conversation, Turn, title_of
from loom_memory.conversations.store.conversations import ConversationRepository
from loom_memory.domain.fencing import fenced
from loom_memory.domain.prompts.titles import TITLE

logger = logging.getLogger(__name__)

LEAST_TURNS: Final = 2
"""Turns from which a conversation is about something. Source: chosen: a question and its answer."""

_LOOK_S: Final = 60.0
_SLOTS: Final = 20
# Where calls for some are held, others take their places.
_READ_PER_SLOT: Final = 4
_READ_TURNS: Final = 12
_TURN_CHARS: Final = 500
_TOKENS: Final = 64
_TIMEOUT_S: Final = 60.0
_MOST_TRIES: Final = 3
_HELD_S: Final = 60.0


class Titles:
    """Titles conversations, each for the newest principal writer of what is read.

    A title that a caller gave is never replaced. One whose conversation changes meanwhile is still its title; one whose
    conversation is deleted is not stored.
    """

    feature = Feature.CONVERSATION_TITLES
    setting = "LOOM_CONVERSATION_TITLES_ENABLED"

    def __init__(
        self,
        rows: ConversationRepository,
        conversations: Conversations,
        llm: LlmPort,
        passes: Passes,
        model_calls: ModelCallGate,
        clock: Clock,
        *,
        interval_s: float = _LOOK_S,
    ) -> None:
        self.interval_s = interval_s
        self._rows = rows
        self._conversations = conversations
        self._llm = llm
        self._passes = passes
        self._model_calls = model_calls
        self._clock = clock
        self._tries: Counter[tuple[Scope, str]] = Counter()
        self._held: dict[tuple[Scope, str], float] = {}

    async def has_work(self) -> bool:
        """See `Worker.has_work`: a fake model titles nothing."""
        try:
            if (await self._llm.served()).fake:
                return False
        except LoomError:
            return False
        return bool(await self._waiting(1))

    async def run_pass(self, lease: Lease) -> Mapping[str, int]:
        """See `Worker.run_pass`."""
        counts: Counter[str] = Counter()
        async with self._passes.passing() as passing:
            for scope, one in await self._waiting(_SLOTS * _READ_PER_SLOT):
                if sum(counts.values()) - counts["held"] >= _SLOTS:
                    break
                counts[await self._title(scope, one, lease, passing)] += 1
        return dict(counts)

    async def _waiting(self, limit: int) -> list[tuple[Scope, Conversation]]:
        now = self._clock.monotonic_s()
        self._held = {place: until for place, until in self._held.items() if until > now}
        given_up = [place for place, tries in self._tries.items() if tries >= _MOST_TRIES]
        return await self._rows.untitled(self._model_calls.off(), [*self._held, *given_up], LEAST_TURNS, limit)

    async def _title(self, scope: Scope, one: Conversation, lease: Lease, passing: WorkerPass) -> str:
        """Titles one conversation and says what came of it."""
        place = scope, one.id
        turns = await self._rows.turns(scope, one, 0, _READ_TURNS)
        if not turns:
            return "empty"
        try:
            with passing.acting(scope, _writer_of(turns), one.user_id):
                answer = await self._llm.complete(
                    TITLE.text,
                    fenced("conversation", _told(turns)),
                    max_tokens=_TOKENS,
                    feature=self.feature.value,
                    prompt=TITLE,
                    timeout_s=_TIMEOUT_S,
                )
        except (*HOLDS, BudgetExhausted) as error:
            self._held[place] = self._clock.monotonic_s() + (error.retry_after_s or _HELD_S)
            logger.warning("title_held", extra={"org": scope.org, "reason": error.reason.value})
            return "held"
        except LoomError as error:
            self._tries[place] += 1
            logger.warning("title_not_made", extra={"org": scope.org, "reason": error.reason.value})
            return "failed"
        title = "" if answer.fake else title_of(answer.text.replace("\x00", "").strip().strip("\"'“”«»"))
        if not title:
            self._tries[place] += 1
            return "unreadable"
        await lease.check()
        return "titled" if await self._conversations.retitle(scope, one.id, title, one) else "changed"


def _told(turns: Sequence[Turn]) -> str:
    return "\n".join(f"{turn.author or turn.role or 'someone'}: {turn.text[:_TURN_CHARS]}" for turn in turns)


def _writer_of(turns: Sequence[Turn]) -> str:
    """Returns the newest writer that is a principal."""
    newest_first = sorted(turns, key=lambda turn: turn.index, reverse=True)
    return next((turn.actor for turn in newest_first if principal_of(turn.actor)), newest_first[0].actor)
