"""Embedding stored texts in the name of who wrote them, many at once, each failing by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, TypeVar

from loom_common.attribution import Attribution, Kind
from loom_common.auth.claims import NO_NAMESPACE
from loom_common.call import Call, Scope, bind, current
from loom_common.clock import Clock
from loom_common.errors import (
    Conflict,
    InvalidArgument,
    LoomError,
    ModelCallUnattributed,
    PayloadTooLarge,
    ProviderFailed,
    Reason,
)
from loom_common.ids import new_id
from loom_common.ledger import LedgerSink, pass_entry
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.held import holds_group
from loom_common.model_calls.jobs import for_attribution
from loom_common.provenance import principal_of
from loom_common.usage import Usage
from loom_memory.app.embedding import Chunk, EmbeddedText, EmbeddingPort, ServedModel, numbered, with_key
from loom_memory.domain.keys import words_of
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.store.embeddings import EmbeddedChunk
from loom_memory.store.rewrites import WaitingText

# Source: chosen. A service that restarts is back within these waits, 15 s together.
_WAITS_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

_RECORDER: Final = "memory"
_TRANSPORT: Final = "worker"

Row = TypeVar("Row")


class StoredTexts:
    """Gives stored texts to the embedder, in passes that the ledger knows."""

    def __init__(
        self,
        embedding: EmbeddingPort,
        feature: str,
        clock: Clock,
        ledger: LedgerSink,
        model_calls: ModelCallGate,
        *,
        waits_s: Sequence[float] = _WAITS_S,
    ) -> None:
        # `feature` names the work in usage and the ledger; `waits_s` lie between attempts of a call that may pass.
        self._embedding = embedding
        self._feature = feature
        self._clock = clock
        self._ledger = ledger
        self._model_calls = model_calls
        self._waits_s = waits_s

    async def served(self) -> ServedModel:
        """Returns the served model.

        Raises:
            BackendUnavailable: Embedding cannot be reached.
        """
        return await self._embedding.served_model()

    async def space(self) -> VectorSpace:
        """Returns the space of the served model.

        Raises:
            BackendUnavailable: Embedding cannot be reached.
        """
        served = await self.served()
        return VectorSpace(served.name, served.dim)

    @asynccontextmanager
    async def passing(self) -> AsyncIterator["Pass"]:
        """Makes the block one pass; what it spent is recorded at its end, a row for each organisation."""
        work = Pass(self._embedding, self._model_calls, self._feature, self._waits_s)
        started_at, began = self._clock.now(), self._clock.monotonic_s()
        outcome = "ok"
        try:
            yield work
        except LoomError as error:
            outcome = error.reason.value
            raise
        except asyncio.CancelledError:
            outcome = Reason.CANCELLED.value
            raise
        finally:
            latency_ms = (self._clock.monotonic_s() - began) * 1000
            for call in work.calls.values():
                self._ledger.record(
                    pass_entry(call, recorder=_RECORDER, started_at=started_at, latency_ms=latency_ms, outcome=outcome)
                )


class Pass:
    """One pass of embedding.

    Attributes:
        calls: What was spent for each organisation.
    """

    def __init__(
        self, embedding: EmbeddingPort, model_calls: ModelCallGate, feature: str, waits_s: Sequence[float]
    ) -> None:
        self._embedding = embedding
        self._model_calls = model_calls
        self._feature = feature
        self._waits_s = waits_s
        self._request_id = current().request_id or new_id()
        self.calls: dict[str, Call] = {}

    def groups(
        self, rows: Sequence[Row], text_of: Callable[[Row], WaitingText]
    ) -> AsyncIterator[tuple[Attribution, list[Row]]]:
        """Yields the rows that one call may hold together, with whom that call is for."""
        return self._model_calls.groups(rows, lambda row: self._attribution(text_of(row)))

    async def embed(
        self, attribution: Attribution, space: VectorSpace, group: Sequence[WaitingText]
    ) -> list[EmbeddedText]:
        """Returns the chunks of each text of a group, or why it has none, in order.

        Why it has none may be a hold, one of `loom_common.model_calls.held.HOLDS`: nothing failed then.

        Raises:
            Conflict: Another model is served now.
            LoomError: None could be embedded, also by trying again where that may help.
        """
        if not attribution.org:
            nobody = ModelCallUnattributed("The text names no organisation, and a call to a model has to.")
            return [nobody] * len(group)
        # Whatever runs around the pass neither pays for it nor bounds its time.
        with bind(Call(request_id=self._request_id)) as spent, for_attribution(attribution):
            try:
                found = await self._whole(group, space)
            finally:
                self._record(spent.usage, group)
            served = await self._embedding.served_model()
        if (served.name, served.dim) != space:
            raise Conflict("The embedding model was changed meanwhile; run it again.", detail={"model": space.model})
        return found

    async def _whole(self, group: Sequence[WaitingText], space: VectorSpace) -> list[EmbeddedText]:
        """Embeds of each text what waits of it, all in one call: its value, what its key says, or both."""
        texts = list(dict.fromkeys(text for waiting in group for text in _inputs(waiting)))
        embedded = [_checked(each, space) for each in await self._patiently(texts)]
        found = dict(zip(texts, embedded, strict=True))
        return [_joined(waiting, found) for waiting in group]

    def _attribution(self, waiting: WaitingText) -> Attribution:
        return Attribution(
            org=waiting.scope.org,
            namespace=waiting.scope.namespace,
            subject=principal_of(waiting.actor),
            user_id=waiting.identity.user_id,
            feature=self._feature,
            kind=Kind.JOB,
        )

    def _record(self, spent: Usage, group: Sequence[WaitingText]) -> None:
        """Counts what a call spent as its organisations', each by its share of the letters."""
        letters: dict[str, int] = {}
        for waiting in group:
            letters[waiting.scope.org] = letters.get(waiting.scope.org, 0) + max(sum(map(len, _inputs(waiting))), 1)
        for org, share in _shares(spent, letters):
            if org not in self.calls:
                scope = Scope(org, NO_NAMESPACE)
                self.calls[org] = Call(self._feature, self._request_id, scope=scope, transport=_TRANSPORT)
            self.calls[org].usage.merge(share)

    async def _patiently(self, texts: Sequence[str]) -> list[EmbeddedText]:
        for wait_s in self._waits_s:
            try:
                return await self._apart(texts)
            except LoomError as error:
                if not (error.row.resend or isinstance(error, ProviderFailed)):
                    raise
                await asyncio.sleep(max(wait_s, min(error.retry_after_s or 0.0, self._waits_s[-1])))
        return await self._apart(texts)

    async def _apart(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """Embeds texts, in ever smaller parts where they are refused together."""
        try:
            return await self._embedding.embed_many(texts)
        except LoomError as error:
            is_refused = isinstance(error, PayloadTooLarge | InvalidArgument)
            # A hold is that of each text: what an earlier part was given stays.
            if holds_group(error) or (is_refused and len(texts) == 1):
                return [error] * len(texts)
            if not is_refused:
                raise
        half = len(texts) // 2
        return [*await self._apart(texts[:half]), *await self._apart(texts[half:])]


def chunks_of(waiting: WaitingText, chunks: Sequence[Chunk]) -> list[EmbeddedChunk]:
    """Returns the rows of a text's vectors, with what its other rows say of it."""
    return [
        EmbeddedChunk(
            scope=waiting.scope,
            identity=waiting.identity,
            version=waiting.version,
            chunk=number,
            start_offset=chunk.start_offset,
            end_offset=chunk.end_offset,
            vector=chunk.vector,
            status=waiting.status,
            invalid_at=waiting.invalid_at,
            attestation=waiting.attestation,
        )
        for number, chunk in numbered(chunks)
    ]


def _inputs(waiting: WaitingText) -> list[str]:
    """Returns the texts that are embedded of a memory."""
    # The database found that the key says something; it may know letters that this process does not.
    said = [words_of(waiting.identity.key) or waiting.identity.key] if Parts.KEYS in waiting.waits else []
    return [*([waiting.text] if Parts.VALUES in waiting.waits else []), *said]


def _joined(waiting: WaitingText, found: Mapping[str, EmbeddedText]) -> EmbeddedText:
    texts = _inputs(waiting)
    value = found[texts[0]] if Parts.VALUES in waiting.waits else []
    return with_key(value, found[texts[-1]]) if Parts.KEYS in waiting.waits else value


def _checked(found: EmbeddedText, space: VectorSpace) -> EmbeddedText:
    if isinstance(found, LoomError) or (found and all(len(chunk.vector) == space.dim for chunk in found)):
        return found
    return ProviderFailed("The text was given a vector of another width.")


def _shares(spent: Usage, weights: Mapping[str, int]) -> Iterator[tuple[str, Usage]]:
    """Yields each one's part of what was spent on embedding; the parts sum up to all of it."""
    total, before = sum(weights.values()), 0

    def part(count: int) -> int:
        return count * after // total - count * before // total

    for name, weight in weights.items():
        after = before + weight
        yield (
            name,
            replace(
                spent,
                embedding_tokens=part(spent.embedding_tokens),
                upstream_cost_usd=spent.upstream_cost_usd * weight / total,
                model_cost_usd=spent.model_cost_usd * weight / total,
                model_tokens=part(spent.model_tokens),
            ),
        )
        before = after
