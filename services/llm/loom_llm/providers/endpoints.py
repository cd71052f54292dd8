"""Posts JSON to servers that are no models of text: rerankers and classifiers, Cohere's among them."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import httpx2

from loom_common.providers import FailureKind, ProviderError, Retrying, RetryPolicy, Sleep, retry_after_s
from loom_common.telemetry.genai import Operation, model_call
from loom_llm.domain.endpoints import Address, ClassifyEndpoint, RerankEndpoint
from loom_llm.domain.labels import Label, labels_of
from loom_llm.domain.ranking import Ranked, Spent, UnreadableRanking, ranking_of
from loom_llm.providers.sdk import CONNECT_TIMEOUT_S

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Longest answer. Source: 200 results with an index and a score are 20 kB; it is read on the event loop."""

# Source: chosen; counts must go into 32 bits.
_MOST_COUNTED: Final = 1_000_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a request goes to."""

    provider: str
    """Its name in errors, on health and in traces."""
    operation: Operation
    address: Address
    model: str
    timeout_s: float
    """Time for all attempts."""


class EndpointClient:
    """Asks endpoints, again where that may help.

    Args:
        open_http: Opens the client to send with, at the first call: it costs time and memory that few deployments need.
            It names whom a call is for, bounds answers and follows no redirect elsewhere.
        policy: What is tried again, and how often. How long, each target says.
        sleep: Waits between attempts.
    """

    def __init__(
        self, open_http: Callable[[], httpx2.AsyncClient], policy: RetryPolicy, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._open_http = open_http
        self._http: httpx2.AsyncClient | None = None
        self._policy = policy
        self._sleep = sleep

    async def ask(self, target: Target, body: Mapping[str, object], read: Callable[[object], T]) -> T:
        """Returns what `read` makes of the answer's JSON.

        Args:
            target: Whom to ask.
            body: What to send, as JSON.
            read: Reads the answer; raises ValueError where it is none.

        Raises:
            ProviderError: It did not answer, or not what was asked for.
        """
        retrying = Retrying(replace(self._policy, total_s=target.timeout_s), sleep=self._sleep)
        return await retrying.run(target.provider, lambda: self._once(target, body, read))

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._http is not None:
            await self._http.aclose()

    async def _once(self, target: Target, body: Mapping[str, object], read: Callable[[object], T]) -> T:
        with model_call(target.operation, target.provider, target.model) as span:
            response = await self._sent(target, body)
            if not response.is_success:
                after_s = retry_after_s(response.headers)
                raise ProviderError(
                    target.provider, FailureKind.STATUS, status=response.status_code, retry_after_s=after_s
                )
            if len(response.content) > MAX_ANSWER_BYTES:
                raise ProviderError(target.provider, FailureKind.MALFORMED)
            try:
                answer = read(json.loads(response.content))
            except (ValueError, RecursionError):
                # What it says may quote the texts: none of it is kept as a cause.
                raise ProviderError(target.provider, FailureKind.MALFORMED) from None
            span.answered(model=target.model)
            return answer

    async def _sent(self, target: Target, body: Mapping[str, object]) -> httpx2.Response:
        timeout = httpx2.Timeout(target.timeout_s, connect=min(target.timeout_s, CONNECT_TIMEOUT_S))
        address = target.address
        if self._http is None:
            self._http = self._open_http()
        try:
            return await self._http.post(address.url, json=body, headers=dict(address.headers), timeout=timeout)
        except httpx2.TimeoutException:
            raise ProviderError(target.provider, FailureKind.TIMEOUT) from None
        except (httpx2.RequestError, httpx2.InvalidURL):
            raise ProviderError(target.provider, FailureKind.CONNECTION) from None


@dataclass(frozen=True, slots=True)
class Scored:
    """What a reranker answered."""

    results: tuple[Ranked, ...]
    spent: Spent


def rerank_body(endpoint: RerankEndpoint, query: str, documents: list[str]) -> dict[str, object]:
    """Returns the request that an endpoint takes. It is asked for every document: it may not leave any out."""
    if endpoint.format == "tei":
        return {"query": query, "texts": documents, "raw_scores": False, "truncate": True}
    body: dict[str, object] = {
        "model": endpoint.model,
        "query": query,
        "documents": documents,
        "top_n": len(documents),
    }
    if endpoint.format == "jina":
        body["return_documents"] = False
    return body


def read_rerank(answer: object, endpoint: RerankEndpoint, count: int) -> Scored:
    """Returns the scores in a reranker's answer: a list of results, or one under `results`.

    Raises:
        UnreadableRanking: It is no ranking of the documents.
    """
    given = answer.get("results") if isinstance(answer, dict) else answer
    if not isinstance(given, list) or len(given) > count or not all(isinstance(one, dict) for one in given):
        raise UnreadableRanking("it is no list of as many results as documents")
    entries = [(one.get("index"), one.get("relevance_score", one.get("score"))) for one in given]
    return Scored(ranking_of(entries, count, logits=endpoint.scores == "logit"), _spent(answer))


def classify_body(endpoint: ClassifyEndpoint, text: str) -> dict[str, object]:
    """Returns the request that a classifier takes."""
    body: dict[str, object] = {"inputs": text, "truncate": True}
    if endpoint.model:
        body["model"] = endpoint.model
    return body


def read_labels(answer: object, endpoint: ClassifyEndpoint) -> tuple[Label, ...]:
    """Returns the labels in a classifier's answer.

    Raises:
        UnreadableLabels: It holds none.
    """
    return labels_of(answer, endpoint.min_score)


def _spent(answer: object) -> Spent:
    """Returns what an answer says that it cost. Counts that are none say nothing: the scores beside them are good."""
    tokens = _count(answer, "usage", "total_tokens") or _count(answer, "meta", "tokens", "input_tokens")
    return Spent(tokens, _count(answer, "meta", "billed_units", "search_units"))


def _count(answer: object, *path: str) -> int:
    for key in path:
        answer = answer.get(key) if isinstance(answer, dict) else None
    if isinstance(answer, float) and answer.is_integer():  # Cohere's counts are JSON numbers of either kind
        answer = int(answer)
    return answer if type(answer) is int and 0 <= answer <= _MOST_COUNTED else 0
