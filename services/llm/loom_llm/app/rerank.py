"""Reranks documents: the gate first, then whoever the reranker's name stands for, then what it cost."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from loom_common import call
from loom_common.errors import FieldViolation, InvalidArgument
from loom_common.json_text import parse_object
from loom_common.prices import model_cost_usd
from loom_common.status import Problem, Severity
from loom_common.telemetry.genai import Operation
from loom_common.usage import Usage
from loom_llm.app.asking import Asking
from loom_llm.app.completion import Completion, Prompt
from loom_llm.app.gate import Gate
from loom_llm.app.models import Models
from loom_llm.domain.endpoints import RerankEndpoint
from loom_llm.domain.prompts.rerank import LISTWISE
from loom_llm.domain.ranking import Ranking, UnreadableRanking, by_shared_words, given_order, listwise
from loom_llm.domain.rerankers import COHERE, COHERE_SEARCH_USD, RerankerName, parse_reranker
from loom_llm.domain.selection import FAKE
from loom_llm.providers.endpoints import Scored, Target, read_rerank, rerank_body

COHERE_KEY: Final = "COHERE_API_KEY"

# Source: chosen. Some 15,000 tokens: what a small model reads well, and a cent of a dear one's.
_PROMPT_CHARS: Final = 60_000
# Source: chosen. What says whether a text is about the query stands at its begin; more costs more than it adds.
_DOCUMENT_CHARS: Final = 1_200
# Source: derived. `{"index": 199, "score": 0.95}, ` is 14 tokens, and models that add white space take 20.
_RESULT_TOKENS: Final = 24
_ANSWER_TOKENS: Final = 64
# Source: Cohere's unit of billing, which counts where an answer does not tell.
_SEARCH_DOCUMENTS: Final = 100
# Source: chosen. What is parsed on the event loop.
_INLINE_CHARS: Final = 65_536

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reranking:
    """What is to be reranked, and by whom."""

    reranker: str
    query: str
    documents: Sequence[str]
    named: bool = False
    """Whether the request names the reranker, and not a namespace or a default."""


class Rerank:
    """Reranks documents.

    Args:
        gate: Says whether a call may have an answer.
        models: The language models.
        completion: Asks them.
        asking: Asks endpoints.
        endpoints: Those of the deployment, by name.
        cohere: How Cohere is reached; its model is the request's. None where its key is missing.
        timeout_s: Time for one call to an endpoint that has none of its own. Units: seconds.
        fake: Whether the served model is the fake, so that a missing key is no mistake.
        require_real: Whether a fake that answers is an error.
    """

    def __init__(
        self,
        gate: Gate,
        models: Models,
        completion: Completion,
        asking: Asking,
        endpoints: Mapping[str, RerankEndpoint],
        cohere: RerankEndpoint | None,
        *,
        timeout_s: float,
        fake: bool,
        require_real: bool = False,
    ) -> None:
        self._gate = gate
        self._models = models
        self._completion = completion
        self._asking = asking
        self._endpoints = endpoints
        self._cohere = cohere
        self._timeout_s = timeout_s
        self._fake = fake
        self._fake_severity: Severity = "error" if require_real else "warning"
        self._faked = False
        self._key_missed = False

    async def rerank(self, asked: Reranking) -> Ranking:
        """Returns all documents in order.

        Raises:
            InvalidArgument: The deployment has no such reranker.
            ReadsLlmFree: It may not run in an operation that only reads.
            ProviderFailed: It did not answer.
        """
        try:
            name = parse_reranker(asked.reranker)
        except ValueError as error:
            raise _unknown(asked.reranker, str(error)) from None
        await self._gate.require(named=asked.named and name.kind != "openai")
        match name.kind:
            case "openai":
                return await self._by_model(name.rest, asked)
            case "cohere":
                return await self._by_cohere(name, asked)
            case "endpoint":
                endpoint = self._endpoints.get(name.rest)
                if endpoint is None:
                    raise _unknown(asked.reranker, "LOOM_RERANK_ENDPOINTS_JSON does not list it")
                return await self._by_endpoint(f"rerank:{name.rest}", endpoint, endpoint.model, asked)

    def problems(self) -> list[Problem]:
        """Returns what an operator should know of rerankers that were asked for."""
        found = []
        if self._faked:
            found.append(
                Problem(
                    "fake_reranker",
                    "A reranker was asked for and the fake answered, which counts shared words. Set the key of a "
                    "model, or take the reranker out of the namespace.",
                    self._fake_severity,
                )
            )
        if self._key_missed:
            found.append(
                Problem(
                    "rerank_key_missing",
                    f"builtin:cohere was asked for and {COHERE_KEY} is not set. Set it.",
                    self._fake_severity,
                )
            )
        return found

    async def _by_model(self, model: str, asked: Reranking) -> Ranking:
        if (await self._models.client(model)).provider == FAKE:
            return self._by_fake(asked)
        count = len(asked.documents)
        result = await self._completion.allowed(
            Prompt(
                LISTWISE.text,
                _listed(asked),
                max_tokens=_ANSWER_TOKENS + _RESULT_TOKENS * count,
                response_format={"type": "json_object"},
                model=model,
                reference=LISTWISE.ref,
            )
        )
        try:
            # An answer that broke off at its cap scores some documents: as with those that a model forgets.
            if len(result.text) <= _INLINE_CHARS:
                parsed = parse_object(result.text)
            else:
                parsed = await asyncio.to_thread(parse_object, result.text)
            return Ranking(listwise(parsed.value or {}, count), result.provider, result.model)
        except UnreadableRanking:
            _log.warning("rerank_unreadable", provider=result.provider, model=result.model, documents=count)
            return Ranking(given_order(count), result.provider, result.model, reranked=False)

    async def _by_cohere(self, name: RerankerName, asked: Reranking) -> Ranking:
        if self._cohere is not None:
            return await self._by_endpoint(COHERE, self._cohere, name.rest, asked)
        if self._fake:
            return self._by_fake(asked)
        if not self._key_missed:
            _log.warning("rerank_key_missing", reranker=asked.reranker, set=COHERE_KEY)
        self._key_missed = True
        raise _unknown(asked.reranker, f"{COHERE_KEY} is not set")

    async def _by_endpoint(self, provider: str, endpoint: RerankEndpoint, model: str, asked: Reranking) -> Ranking:
        count = len(asked.documents)
        address = endpoint.address
        target = Target(provider, Operation.RERANK, address, model, address.timeout_s or self._timeout_s)
        body = rerank_body(endpoint, asked.query, list(asked.documents))
        if model:
            body["model"] = model

        def spent(scored: Scored) -> Usage:
            return _usage(provider, model, scored, count)

        scored = await self._asking.ask(target, body, lambda answer: read_rerank(answer, endpoint, count), spent)
        call.current().usage.merge(spent(scored))
        return Ranking(scored.results, provider, model)

    def _by_fake(self, asked: Reranking) -> Ranking:
        if not self._faked:
            _log.warning("fake_reranker", reranker=asked.reranker)
        self._faked = True
        return Ranking(by_shared_words(asked.query, asked.documents), FAKE, "fake-rerank-1")


def _listed(asked: Reranking) -> str:
    """Returns the query and the beginnings of the documents as JSON: nothing in them can end what they stand in."""
    longest = max(1, min(_DOCUMENT_CHARS, _PROMPT_CHARS // len(asked.documents)))
    documents = [{"index": index, "text": text[:longest]} for index, text in enumerate(asked.documents)]
    return json.dumps({"query": asked.query, "documents": documents}, ensure_ascii=False)


def _usage(provider: str, model: str, scored: Scored, count: int) -> Usage:
    """Returns what a reranker charged: Cohere by searches, others by tokens where the model's price is listed."""
    tokens = scored.spent.tokens
    if provider == COHERE and model in COHERE_SEARCH_USD:
        searches = scored.spent.searches or math.ceil(count / _SEARCH_DOCUMENTS)
        cost_usd = searches * COHERE_SEARCH_USD[model]
    else:
        # Of a model that is not listed nothing, which is logged once; a server of one's own has no price.
        cost_usd = model_cost_usd(model, tokens) if provider == COHERE or (model and tokens) else 0.0
    named = model or provider
    return Usage(
        input_tokens=tokens,
        llm_calls=1,
        upstream_cost_usd=cost_usd,
        model=named,
        model_cost_usd=cost_usd,
        model_tokens=tokens,
    )


def _unknown(name: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"The reranker {name!r} cannot be asked: {why}.", fields=[FieldViolation("reranker", f"{why}.")]
    )
