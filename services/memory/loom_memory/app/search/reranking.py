"""The place of a reranker behind the order of the legs: asked by name, or by the namespace."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from loom_common.auth.directory import Directory
from loom_common.errors import InvalidArgument, LoomError
from loom_memory.app.llm import LlmPort
from loom_memory.app.search.placing import Placed
from loom_memory.app.search.run import SearchRun
from loom_memory.domain.findings import HelperNote
from loom_memory.domain.memory import Identity, Memory

logger = logging.getLogger(__name__)

MAX_RERANKED: Final = 50
"""Best hits that are scored again. Source: chosen; what stands lower would have to jump the whole first page."""

_MAX_CHARS: Final = 4_000
_LANGUAGE_MODEL: Final = "builtin:openai"
_NAME: Final = "rerank"


class Reranking:
    """Orders the best hits of a search anew.

    Args:
        llm: Knows the rerankers.
        directory: Knows which one a namespace has.
        llm_free: Whether only a reranker runs that the request names, and a language model never.
    """

    def __init__(self, llm: LlmPort, directory: Directory, *, llm_free: bool) -> None:
        self._llm = llm
        self._directory = directory
        self._llm_free = llm_free

    async def endpoint(self, run: SearchRun, best_cosine: float) -> tuple[str, HelperNote | None]:
        """Returns the reranker to ask, empty for none, and why one that there is does not run."""
        named = run.query.rerank
        endpoint = named or await self._of_namespace(run)
        if not endpoint:
            return "", None
        is_language_model = endpoint == _LANGUAGE_MODEL or endpoint.startswith(f"{_LANGUAGE_MODEL}:")
        if self._llm_free and (is_language_model or not named):
            return "", HelperNote(_NAME, "skipped: reads without models")
        if run.query.is_fast and is_language_model:
            return "", HelperNote(_NAME, "skipped: fast")
        if not named and run.thresholds is not None and best_cosine > run.thresholds.rerank_skip:
            return "", HelperNote(_NAME, "skipped: the best hit is near enough")
        return endpoint, None

    async def reranked(
        self, run: SearchRun, endpoint: str, hits: Sequence[Placed], memories: Mapping[Identity, Memory]
    ) -> tuple[list[Placed], HelperNote]:
        """Returns the hits with the best in the reranker's order, the others behind them as they were.

        Raises:
            InvalidArgument: The request names a reranker that there is not.
        """
        head = [hit for hit in hits[:MAX_RERANKED] if hit.identity in memories]
        if not head:
            return list(hits), HelperNote(_NAME, "skipped: no hits")
        texts = [memories[hit.identity].content.value[:_MAX_CHARS] for hit in head]
        try:
            scores = await self._llm.rerank(run.query.text, texts, endpoint=endpoint, named=bool(run.query.rerank))
        except InvalidArgument:
            if run.query.rerank:
                raise
            return list(hits), HelperNote(_NAME, "failed: INVALID_ARGUMENT")
        except LoomError as error:
            logger.info("rerank_failed", extra={"reason": error.reason.value})
            return list(hits), HelperNote(_NAME, f"failed: {error.reason.value}")
        scored = zip(head, scores, strict=True)
        ordered = sorted(scored, key=lambda pair: -pair[1])
        first = [hit._replace(components={**hit.components, _NAME: score}) for hit, score in ordered]
        moved = {hit.identity for hit in head}
        return [*first, *(hit for hit in hits if hit.identity not in moved)], HelperNote(_NAME, f"used: {endpoint}")

    async def _of_namespace(self, run: SearchRun) -> str:
        if self._llm_free:
            return ""
        try:
            info = await self._directory.namespace_info(run.scope.org, run.scope.namespace)
        except LoomError as error:
            logger.info("rerank_endpoint_unread", extra={"reason": error.reason.value})
            return ""
        return info.rerank_endpoint if info else ""
