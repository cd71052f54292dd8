"""Embeds with a model that is called over the network: what is sent together, what is sent again, what it cost."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from numpy.typing import ArrayLike

from loom_common import call
from loom_common.errors import InvalidArgument, LoomError, Overloaded, ProviderFailed
from loom_common.model_calls.gate import OPEN_GATE, Gate
from loom_common.model_calls.held import HOLDS
from loom_common.orphans import Orphans
from loom_common.prices import embedding_cost_usd
from loom_common.providers import FailureKind, ProviderError, ProviderHealth, Retrying, RetryPolicy, provider_failed
from loom_common.telemetry.genai import Operation, model_call
from loom_common.usage import Usage
from loom_embedding.domain.embedder import Outcome, ServedModel, Tokens, Vector
from loom_embedding.domain.vectors import MalformedEmbedding, ProviderBusy, all_vectors, unit_vector
from loom_embedding.providers.api import Answer, EmbeddingApi, Refused

RETRYABLE_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

REQUEST_TEXTS: Final = 100
"""Most texts of one request."""

REQUEST_TOKENS: Final = 250_000
"""Most tokens of one request. Source: OpenAI's documentation says 300,000; other servers count a little otherwise."""

_REQUESTS_AT_ONCE: Final = 4  # Source: chosen; a provider limits by the minute, and queries must get through as well.

# Most requests that a request is divided into to find the texts that were refused. Source: chosen; one bad text among a
# hundred takes at most 15 where the provider does not name it.
_MOST_PARTS: Final = 32

# Source: measured 2026-11-30: below this length counting costs less than handing it to a thread.
_INLINE_CHARS: Final = 2_000

_log = structlog.get_logger(__name__)


def retry_policy(attempts: int, max_wait_s: float) -> RetryPolicy:
    """Returns the policy of calls that embed stored texts; see `RetryPolicy` for the numbers."""
    return RetryPolicy(RETRYABLE_STATUSES, attempts, max_wait_s)


@dataclass(slots=True)
class _Job:
    """What became of the texts of one call, and the failure that ended its hope for the rest."""

    texts: Sequence[str]
    outcomes: dict[int, Outcome]
    outage: ProviderError | None = None
    held: LoomError | None = None
    """Why no further request is made although the provider did not fail."""
    refusal: ProviderError | None = None
    """The last failure that may have been the fault of one text."""


class RemoteEmbedder:
    """Embeds through one API.

    Every call, of either path, passes the gate first: before tokens are counted and before the provider's health knows
    of it. A refusal of whom it is for is not the provider's failure.

    Args:
        served: The model.
        api: Where it is.
        tokens: Its tokens.
        policy: When a request for stored texts is sent again. A query has one attempt.
        health: Told how calls end.
        retrying: Sends again by `policy`; tests give one that does not wait.
        max_waiting: Texts that may wait before further calls are refused.
        gate: What every call passes first.
        orphans: Sees to requests that their callers left; None: these are cut, and what they cost is not known.
    """

    def __init__(
        self,
        served: ServedModel,
        api: EmbeddingApi,
        tokens: Tokens,
        policy: RetryPolicy,
        health: ProviderHealth,
        *,
        retrying: Retrying | None = None,
        max_waiting: int = 4096,
        gate: Gate = OPEN_GATE,
        orphans: Orphans | None = None,
    ) -> None:
        self.model_name = served.name
        self.dim = served.dim
        self.seen_dim: int | None = None
        """Width of the last row that the provider answered."""
        self._served = served
        self._api = api
        self._tokens = tokens
        self._policy = policy
        self._retrying = retrying or Retrying(policy)
        self._health = health
        self._slots = asyncio.Semaphore(_REQUESTS_AT_ONCE)
        self._waiting = 0
        self._max_waiting = max_waiting
        self._gate = gate
        self._orphans = orphans

    async def embed(self, text: str) -> Vector:
        """See `Embedder.embed`."""
        await self._gate.require()
        [count] = await self._counts([text])
        if (oversize := self._oversize("text", count)) is not None:
            raise oversize
        try:
            answer = await self._request([text])
            vector = self._vector(answer.rows[0])
        except ProviderError as error:
            self._failed(error)
            raise self._for_callers(error) from None
        except MalformedEmbedding:
            self._failed(self._malformed())
            raise
        self._health.answered()
        return vector

    async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_many`."""
        return all_vectors(await self._embed_waiting(texts, all_or_none=True))

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        """See `Embedder.embed_each`."""
        return await self._embed_waiting(texts, all_or_none=False)

    async def _embed_waiting(self, texts: Sequence[str], *, all_or_none: bool) -> list[Outcome]:
        await self._gate.require()
        if self._waiting >= self._max_waiting:
            raise Overloaded(
                "Too many texts wait to be embedded. Send them again in a moment.", detail={"waiting": self._waiting}
            )
        self._waiting += len(texts)
        try:
            return await self._embed_each(texts, all_or_none=all_or_none)
        finally:
            self._waiting -= len(texts)

    async def _embed_each(self, texts: Sequence[str], *, all_or_none: bool) -> list[Outcome]:
        counts = await self._counts(texts)
        job = _Job(texts, {})
        for place, count in enumerate(counts):
            if (oversize := self._oversize(f"texts[{place}]", count)) is not None:
                if all_or_none:
                    raise oversize  # before anything is sent and charged
                job.outcomes[place] = oversize
        parts = list(_requests([(place, n) for place, n in enumerate(counts) if place not in job.outcomes]))
        if len(parts) == 1:
            await self._part(job, parts[0])
        else:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(self._part(job, part))
        return self._ended(job)

    def _ended(self, job: _Job) -> list[Outcome]:
        """Returns the outcomes in order, and notes how the provider fares.

        Raises:
            ProviderFailed: It failed for every text.
            ModelCallRefused: A gateway refused whom the call is for, for every text.
            ModelCallDeferred: A gateway asked whom the call is for to wait, for every text.
        """
        whole = _any_vector(job)
        if job.held is not None:
            if not whole:
                raise job.held
            return [job.outcomes.get(place, job.held) for place in range(len(job.texts))]
        if job.outage is not None:
            self._failed(job.outage)
            failure = self._for_callers(job.outage)
            if not whole:
                raise failure
            return [job.outcomes.get(place, failure) for place in range(len(job.texts))]
        if whole:
            self._health.answered()
        elif any(isinstance(outcome, ProviderFailed) for outcome in job.outcomes.values()):
            self._failed(job.refusal or self._malformed())
        return [job.outcomes[place] for place in range(len(job.texts))]

    async def _part(self, job: _Job, places: Sequence[int]) -> None:
        """Embeds what is sent together, divided where that may find the one text at fault."""
        async with self._slots:
            waiting, sent, refusal = deque([places]), 0, None
            while waiting and job.outage is None and job.held is None:
                part = waiting.popleft()
                if sent == _MOST_PARTS:
                    refusal = refusal or self._malformed()
                    _refuse(job, part, self._for_callers(refusal))
                    continue
                sent += 1
                try:
                    self._keep(job, part, await self._ask([job.texts[place] for place in part]))
                except Refused as error:
                    refusal = job.refusal = error
                    waiting.extend(self._divided(job, part, error))
                except ProviderError as error:
                    job.outage = error
                except HOLDS as error:
                    job.held = error
            if refusal is not None and len(places) > 1 and not _any_vector(job):
                # Not one text of many was taken: the fault lies in what they have in common.
                job.outage = job.outage or refusal

    def _divided(self, job: _Job, part: Sequence[int], error: Refused) -> list[Sequence[int]]:
        """Returns what to send instead of a request that was refused."""
        if len(part) == 1:
            _refuse(job, part, self._for_callers(error))
            return []
        if error.at is not None and error.at < len(part):
            _refuse(job, part[error.at : error.at + 1], self._for_callers(error))
            return [[*part[: error.at], *part[error.at + 1 :]]]
        half = len(part) // 2
        return [part[:half], part[half:]]

    def _keep(self, job: _Job, part: Sequence[int], answer: Answer) -> None:
        for place, row in zip(part, answer.rows, strict=True):
            try:
                job.outcomes[place] = self._vector(row)
            except MalformedEmbedding as error:
                job.outcomes[place] = error

    async def _ask(self, texts: Sequence[str]) -> Answer:
        return await self._retrying.run(self._api.provider, lambda: self._request(texts))

    async def _request(self, texts: Sequence[str]) -> Answer:
        work = self._answered(texts)
        answer = await (work if self._orphans is None else self._orphans.run(work, self._spent))
        call.current().usage.merge(self._spent(answer))
        return answer

    async def _answered(self, texts: Sequence[str]) -> Answer:
        with model_call(Operation.EMBEDDINGS, self._api.provider, self.model_name) as span:
            answer = await self._api.embed(texts)
            span.answered(input_tokens=answer.tokens)
        return answer

    def _spent(self, answer: Answer) -> Usage:
        spent_usd = embedding_cost_usd(self.model_name, answer.tokens)
        return Usage(
            embedding_tokens=answer.tokens,
            upstream_cost_usd=spent_usd,
            model=self.model_name,
            model_cost_usd=spent_usd,
            model_tokens=answer.tokens,
        )

    def _vector(self, row: ArrayLike) -> Vector:
        if isinstance(row, list) and row:
            self.seen_dim = len(row)
        return unit_vector(row, self.dim)

    def _oversize(self, field: str, count: int) -> InvalidArgument | None:
        most = self._served.budget_tokens
        if count <= most:
            return None
        return InvalidArgument.of(field, f"has {count} tokens, and {self.model_name} takes {most}", max_tokens=most)

    async def _counts(self, texts: Sequence[str]) -> list[int]:
        if sum(map(len, texts)) <= _INLINE_CHARS:
            return self._counted(texts)
        return await asyncio.to_thread(self._counted, texts)

    def _counted(self, texts: Sequence[str]) -> list[int]:
        return [len(self._tokens.spans(text)) for text in texts]

    def _for_callers(self, error: ProviderError) -> ProviderFailed:
        failure = provider_failed(error)
        if error.kind is FailureKind.MALFORMED:
            return MalformedEmbedding(failure.message, detail=failure.detail)
        if self._policy.may_help(error):
            return ProviderBusy(failure.message, detail=failure.detail, retry_after_s=failure.retry_after_s)
        return failure

    def _failed(self, error: ProviderError) -> None:
        self._health.failed(error)
        _log.warning(
            "provider_failed",
            provider=error.provider,
            kind=error.kind.value,
            status=error.status,
            attempts=error.attempts,
        )

    def _malformed(self) -> ProviderError:
        return ProviderError(self._api.provider, FailureKind.MALFORMED)


def _refuse(job: _Job, places: Sequence[int], failure: LoomError) -> None:
    job.outcomes.update(dict.fromkeys(places, failure))


def _any_vector(job: _Job) -> bool:
    return any(not isinstance(outcome, LoomError) for outcome in job.outcomes.values())


def _requests(counted: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Yields the places of the texts of each request, from (place, tokens) in order."""
    part: list[int] = []
    tokens = 0
    for place, count in counted:
        if part and (len(part) == REQUEST_TEXTS or tokens + count > REQUEST_TOKENS):
            yield part
            part, tokens = [], 0
        part.append(place)
        tokens += count
    if part:
        yield part
