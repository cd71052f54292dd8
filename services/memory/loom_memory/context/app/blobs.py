"""Parking texts outside of a context, and reading them back."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import InvalidArgument, PayloadTooLarge
from loom_common.local_locks import KeyedLocks
from loom_common.safe_patterns import PatternRefused, SafePattern
from loom_memory.context.domain.blobs import Blob, Part, PatternTooSlow, digest_of, key_of, matching, sliced, summary_of
from loom_memory.context.store.blobs import BlobRepository
from loom_memory.domain.memory import to_milliseconds

# Parking the same again within this share of its time changes nothing: it would store the whole text again for minutes.
_SAME_WITHIN: Final = 0.1
# Source: chosen. A thread that looks for a pattern cannot be stopped from outside.
_MOST_LOOKING_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class ParkedText:
    """What became of a text: as it is kept, and whether this call stored it."""

    blob: Blob
    stored: bool


@dataclass(frozen=True, slots=True)
class FetchedPart:
    """A part of a parked text."""

    blob: Blob
    part: Part


class Blobs:
    """Answers `context.offload` and `context.fetch`.

    Args:
        max_bytes: Longest text. Units: bytes of UTF-8.
    """

    def __init__(self, blobs: BlobRepository, clock: Clock, *, max_bytes: int) -> None:
        self._blobs = blobs
        self._clock = clock
        self._max_bytes = max_bytes
        self._locks = KeyedLocks()

    async def park(
        self, scope: Scope, content: str, *, key: str, summary: str, ttl_s: int, actor: str, user_id: str
    ) -> ParkedText:
        """Parks a text. The same under no key of its own is one row; under a key of its own it replaces.

        Raises:
            PayloadTooLarge: It is longer than is taken.
            InvalidArgument: The key holds a control character.
        """
        size = len(content.encode("utf-8", "surrogatepass"))
        if size > self._max_bytes:
            raise PayloadTooLarge(
                f"The text has {size} bytes; at most {self._max_bytes} are parked. Park it in parts.",
                detail={"size_bytes": size, "max_bytes": self._max_bytes},
            )
        if any(char < " " or char == "\x7f" for char in key):
            raise InvalidArgument.of("blob_key", "must not hold control characters")
        digest = await asyncio.to_thread(digest_of, content)
        key = key or key_of(digest)
        now = to_milliseconds(self._clock.now())
        blob = Blob(
            scope, key, content, digest, summary_of(content, summary), user_id, actor, now,
            now + timedelta(seconds=ttl_s),
        )  # fmt: skip
        async with self._locks.one((scope, key)):
            return await self._park(blob, now, timedelta(seconds=ttl_s * _SAME_WITHIN), is_summary_given=bool(summary))

    async def _park(self, blob: Blob, now: datetime, same_within: timedelta, *, is_summary_given: bool) -> ParkedText:
        newest = await self._blobs.newest(blob.scope, blob.key)
        if newest is None:
            await self._blobs.insert(blob, kept_until=blob.expires_at, version=self._clock.now_ns())
            return ParkedText(blob, stored=True)
        if (
            newest.digest == blob.digest
            and newest.expires_at > now
            and newest.expires_at >= blob.expires_at - same_within
            and (newest.summary == blob.summary or not is_summary_given)
        ):
            kept = Blob(
                blob.scope, blob.key, blob.content, blob.digest, newest.summary, newest.user_id, blob.actor,
                blob.created_at, newest.expires_at,
            )  # fmt: skip
            return ParkedText(kept, stored=False)
        await self._blobs.insert(
            blob,
            # An older row of the key must be gone before this one is, or it would be seen again.
            kept_until=max(blob.expires_at, newest.kept_until),
            version=max(self._clock.now_ns(), newest.version + 1),
        )
        return ParkedText(blob, stored=True)

    async def fetch(
        self, scope: Scope, key: str, *, offset: int, limit: int, pattern: str, around: int
    ) -> FetchedPart | None:
        """Returns a part of a parked text; None where there is none, or it has expired.

        Raises:
            InvalidArgument: The pattern is none that RE2 takes, or takes too long over the text.
        """
        wanted = None
        if pattern:
            try:
                wanted = SafePattern(pattern, ignore_case=True)
            except PatternRefused as error:
                raise InvalidArgument.of("pattern", f"is no regular expression that RE2 takes: {error}") from None
        blob = await self._blobs.get(scope, key, self._clock.now())
        if blob is None:
            return None
        if wanted is None:
            return FetchedPart(blob, sliced(blob.content, offset, limit))
        until = self._clock.monotonic_s() + _MOST_LOOKING_S
        try:
            part = await asyncio.to_thread(
                matching, blob.content, wanted, around, offset, limit, lambda: self._clock.monotonic_s() > until
            )
        except PatternTooSlow as error:
            raise InvalidArgument.of("pattern", str(error)) from None
        return FetchedPart(blob, part)
