"""Taking orders for erasures, and telling how far they are."""

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.erasure import NamedMemory
from loom_common.errors import InvalidArgument
from loom_common.ids import new_id
from loom_memory.domain.memory import Identity, to_milliseconds
from loom_memory.store.erasures import REDACT, RUNNING, USER, Asked, ErasureRepository, Receipt
from loom_memory.store.redactions import RedactionRepository

DEFAULT_REPLACEMENT: Final = "[redacted]"
_MILLISECOND: Final = timedelta(milliseconds=1)


class ErasureDesk:
    """Begins erasures; the worker carries them out."""

    def __init__(
        self, erasures: ErasureRepository, redactions: RedactionRepository, clock: Clock, begun: Callable[[], None]
    ) -> None:
        # `begun` wakes the worker.
        self._erasures = erasures
        self._redactions = redactions
        self._clock = clock
        self._begun = begun

    async def erase_user(self, scope: Scope, user_id: str, actor: str, *, whole_org: bool) -> Receipt:
        """Begins to erase everything of a user, in a namespace or in all of the organisation's.

        One that runs already for the same is returned as it is: what was written since is not part of it.
        """
        namespace = "" if whole_org else scope.namespace
        return await self._begin(scope.org, namespace, USER, actor, Asked(user_id=user_id), ())

    async def redact(
        self, scope: Scope, identities: Sequence[Identity], actor: str, *, text: str, regex: str, replacement: str
    ) -> Receipt:
        """Begins to replace a text in named memories, or to erase them where none is given.

        Raises:
            InvalidArgument: Both a text and an expression are given, the expression is none, what stands in the place
                of the text holds it, or the name of a memory does.
        """
        names = [part for identity in identities for part in identity]
        if text and regex:
            raise InvalidArgument.of("regex", "stands beside text; give one of them")
        is_named = await self._redactions.check(regex, names) if regex else any(text and text in name for name in names)
        if text and text in replacement:
            raise InvalidArgument.of("replacement", "holds the text that it replaces")
        if is_named:
            raise InvalidArgument.of(
                "memories", "name a key, user or session that holds the text; erase that memory whole"
            )
        asked = Asked("", text, regex, replacement) if text or regex else Asked()
        memories = [NamedMemory(scope.namespace, *identity) for identity in dict.fromkeys(identities)]
        return await self._begin(scope.org, scope.namespace, REDACT, actor, asked, memories)

    async def get(self, scope: Scope, erasure_id: str) -> Receipt | None:
        """Returns an erasure of the namespace or of the whole organisation, or None."""
        receipt = await self._erasures.get(scope.org, erasure_id)
        return receipt if receipt is not None and receipt.namespace in ("", scope.namespace) else None

    async def _begin(
        self, org: str, namespace: str, kind: str, actor: str, asked: Asked, memories: Sequence[NamedMemory]
    ) -> Receipt:
        digest = _digest(namespace, kind, asked, memories)
        running = await self._erasures.same(org, digest)
        if running is not None:
            return running
        receipt = Receipt(
            org=org,
            erasure_id=new_id(),
            namespace=namespace,
            kind=kind,
            subject_digest=digest,
            actor=actor,
            state=RUNNING,
            step=0,
            waiting_for="its turn",
            remaining=(),
            started_at=_next_millisecond(self._clock.now()),
        )
        await self._erasures.begin(receipt, asked, memories)
        self._begun()
        return receipt


def _next_millisecond(now: datetime) -> datetime:
    """Returns a time as the store keeps it, behind every write that ended before."""
    return to_milliseconds(now) + _MILLISECOND


def _digest(namespace: str, kind: str, asked: Asked, memories: Sequence[NamedMemory]) -> str:
    named = sorted([one.namespace, one.key, one.user_id, one.session_id] for one in memories)
    told = [namespace, kind, asked.user_id, asked.text, asked.regex, asked.replacement, named]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
