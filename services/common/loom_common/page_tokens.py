"""Page tokens: where a list goes on, for one query and no other.

A token is opaque to callers and holds no secret: the place after the last row that was shown, and a digest of the
query. It is not signed. A forged one only names another place in the caller's own results, since every page is
authorized and scoped like the first.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from loom_common.errors import InvalidArgument

MAX_TOKEN_CHARS: Final = 4096

_FORM: Final = 1
_DIGEST_BYTES: Final = 12
_MAX_PLACES: Final = 16
_FIELD: Final = "page_token"

Place = str | int | float | bool | None
"""One part of the key that rows are ordered by. Integers of any width keep their value."""


def encode_page_token(place: Sequence[Place], query: Mapping[str, JsonValue]) -> str:
    """Returns the token of the page after `place`.

    Args:
        place: Key of the last row shown, in the order of the sorting key.
        query: Everything that decides which rows are listed and in which order: the scope, filters and order, without
            the page size and the token itself.

    Raises:
        ValueError: The key is too long for a token.
    """
    body = json.dumps([_FORM, query_digest(query), *place], ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    token = base64.urlsafe_b64encode(body.encode("utf-8", "surrogatepass")).rstrip(b"=").decode("ascii")
    if len(token) > MAX_TOKEN_CHARS or len(place) > _MAX_PLACES:
        raise ValueError("the sorting key is too long for a page token")
    return token


def decode_page_token(token: str, query: Mapping[str, JsonValue], kinds: Sequence[type]) -> tuple[Place, ...] | None:
    """Returns the place where the page begins, or None for an empty token, the first page.

    Args:
        token: What the caller sent.
        query: As for `encode_page_token`.
        kinds: Type of each part of the place; a part may also be None where its kind is `object`.

    Raises:
        InvalidArgument: It is no token of this list, or one of another query.
    """
    if not token:
        return None
    held = _read(token)
    if held is None or len(held) < 2 or held[0] != _FORM or isinstance(held[0], bool):
        raise InvalidArgument.of(_FIELD, "must be the next_page_token of the page before, as it was given")
    if held[1] != query_digest(query):
        raise InvalidArgument.of(_FIELD, "belongs to another query; send the same filters, or begin without a token")
    place = held[2:]
    if len(place) != len(kinds) or not all(_is_a(part, kind) for part, kind in zip(place, kinds, strict=True)):
        raise InvalidArgument.of(_FIELD, "must be the next_page_token of the page before, as it was given")
    return tuple(place)


def query_digest(query: Mapping[str, JsonValue]) -> str:
    """Returns a short digest of a query; the order of its keys does not count, that of its lists does."""
    text = json.dumps(query, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def _read(token: str) -> list[Place] | None:
    if len(token) > MAX_TOKEN_CHARS or not token.isascii():
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        held = json.loads(raw.decode("utf-8", "surrogatepass"), parse_constant=_refuse)
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not isinstance(held, list) or not all(isinstance(part, (str, int, float, bool, type(None))) for part in held):
        return None
    return held


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _is_a(part: Place, kind: type) -> bool:
    if kind is object:
        return True
    if isinstance(part, bool):
        return kind is bool
    return isinstance(part, kind) or (kind is float and isinstance(part, int))
