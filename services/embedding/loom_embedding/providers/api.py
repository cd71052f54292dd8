"""What an HTTP API of vectors is, whichever provider speaks it, and how its failures are told apart."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from numpy.typing import ArrayLike

from loom_common.providers import FailureKind, ProviderError

# An answer's own words are read for a place and a name, and never kept: they may quote the text.
_PLACE: Final = re.compile(r"\b(?:input|requests)\[(\d{1,4})\]")

REFUSED_STATUSES: Final = frozenset({400, 413, 422})
"""Statuses that may be the fault of one text among several."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought."""

    rows: Sequence[ArrayLike]
    """One row of numbers per text, in order, unchecked."""
    tokens: int = 0
    """Tokens that the provider says it embedded; 0 where it does not say."""


class Refused(ProviderError):
    """A request failed as it stands, which may be the fault of one text among several.

    Attributes:
        at: Place of that text in the request, where the provider names it.
    """

    def __init__(self, provider: str, kind: FailureKind, *, status: int | None = None, at: int | None = None) -> None:
        super().__init__(provider, kind, status=status)
        self.at = at


class EmbeddingApi(Protocol):
    """One model of one provider, one request at a time."""

    @property
    def provider(self) -> str:
        """Name of the provider."""
        ...

    async def embed(self, texts: Sequence[str]) -> Answer:
        """Returns the answer to one request, in one attempt.

        Raises:
            Refused: The request failed as it stands.
            ProviderError: The provider failed.
        """
        ...

    async def aclose(self) -> None:
        """Closes its connections."""
        ...


def status_failure(provider: str, status: int, words: str, retry_after_s: float | None) -> ProviderError:
    """Returns the failure that an HTTP error stands for.

    Args:
        provider: Name of the provider.
        status: Status of the answer.
        words: What the provider said, to be searched for the place of a text.
        retry_after_s: Time that it asked to wait.
    """
    if status in REFUSED_STATUSES:
        place = _PLACE.search(words)
        return Refused(provider, FailureKind.STATUS, status=status, at=int(place[1]) if place else None)
    return ProviderError(provider, FailureKind.STATUS, status=status, retry_after_s=retry_after_s)


def one_row_each(provider: str, rows: Sequence[ArrayLike], texts: Sequence[str], tokens: int = 0) -> Answer:
    """Returns the answer where it has a row for every text.

    Raises:
        Refused: It has not; whose row is missing, nobody knows.
    """
    if len(rows) != len(texts):
        raise Refused(provider, FailureKind.MALFORMED)
    return Answer(rows, tokens)


def sendable(texts: Sequence[str]) -> list[str]:
    """Returns the texts as APIs take them: they refuse an empty one, whose nearest neighbour is a space."""
    return [text or " " for text in texts]
