"""Names of rerankers, as searches and namespaces give them."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from loom_llm.domain.endpoints import BUILTIN

RerankerKind: TypeAlias = Literal["openai", "cohere", "endpoint"]

COHERE: Final = "cohere"
DEFAULT_COHERE_MODEL: Final = "rerank-v4.0-fast"
"""Source: Cohere's faster one of its fourth generation; a search waits for it."""

_LONGEST_MODEL: Final = 128

COHERE_SEARCH_USD: Final = {"rerank-v4.0-pro": 0.0025, "rerank-v4.0-fast": 0.002, "rerank-v3.5": 0.002}
"""Price of one search, which is a query with up to 100 documents. Units: US dollars. Source: $2 per thousand for
v4.0-fast and v3.5, as artificial-intelligence-wiki.com repeats Cohere's list (2025-12-31); $0.0025 for v4.0-pro, as
OpenRouter lists it (2026-04-06)."""


@dataclass(frozen=True, slots=True)
class RerankerName:
    """A reranker's name, read."""

    kind: RerankerKind
    rest: str = ""
    """Model of a built-in one, empty for its own; name of an endpoint."""


def parse_reranker(name: str) -> RerankerName:
    """Returns what a name stands for: `builtin:openai[:model]`, `builtin:cohere[:model]`, or that of an endpoint.

    Raises:
        ValueError: It begins like a built-in one and is none.
    """
    if not name.startswith(BUILTIN):
        return RerankerName("endpoint", name)
    kind, colon, model = name.removeprefix(BUILTIN).partition(":")
    if (colon and not model) or len(model) > _LONGEST_MODEL:
        raise ValueError("the model behind the colon is missing, or too long")
    match kind:
        case "openai":
            return RerankerName("openai", model)
        case "cohere":
            return RerankerName("cohere", model or DEFAULT_COHERE_MODEL)
        case _:
            raise ValueError("built in are builtin:openai and builtin:cohere")
