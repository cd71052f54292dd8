"""HTTP servers that rerank and classify, as the operator lists them. No request ever names an address of its own."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, TypeVar, cast, get_args

from loom_common.settings import URL_PATTERN

RerankFormat: TypeAlias = Literal["cohere", "jina", "tei"]
"""How requests are worded: Cohere's, Jina's (Cohere's with `return_documents`), text-embeddings-inference's."""
Scores: TypeAlias = Literal["unit", "logit"]
"""Whether scores are from 0 to 1, or have no bounds."""

BUILTIN: Final = "builtin:"
"""Begins the names that need no endpoint."""

NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
"""Name of an endpoint, as namespaces may name it."""

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,8190}[\x21-\x7e])?")
# They are the connection's, or say how the body is to be read.
_TAKEN: Final = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding"}
)
_URL: Final = re.compile(URL_PATTERN)
_MOST_ENDPOINTS: Final = 64
_LONGEST_TIMEOUT_S: Final = 600.0
_LONGEST_MODEL: Final = 128

DEFAULT_MIN_SCORE: Final = 0.5
"""Score from which on a label counts. Source: the usual bound of a classifier that says yes or no per label."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint is, and how it is reached."""

    url: str = field(repr=False)
    """May hold a password."""
    headers: Mapping[str, str] = field(repr=False, default_factory=lambda: MappingProxyType({}))
    """Hold keys."""
    timeout_s: float | None = None
    """Time for all attempts of one call; None for the setting's."""


@dataclass(frozen=True, slots=True)
class RerankEndpoint:
    """A server that scores documents."""

    address: Address
    format: RerankFormat = "cohere"
    model: str = ""
    scores: Scores = "unit"


@dataclass(frozen=True, slots=True)
class ClassifyEndpoint:
    """A server that labels a text."""

    address: Address
    model: str = ""
    min_score: float = DEFAULT_MIN_SCORE


def parse_rerank_endpoints(text: str) -> Mapping[str, RerankEndpoint]:
    """Returns the rerankers that a JSON object spells, by name; empty for none.

    Raises:
        ValueError: It is no such object. The words hold nothing of an address, a key or a header's value.
    """
    return _parsed(text, _rerank_endpoint, {"format", "scores"})


def parse_classify_endpoints(text: str) -> Mapping[str, ClassifyEndpoint]:
    """Returns the classifiers that a JSON object spells, by name; empty for none.

    Raises:
        ValueError: It is no such object. The words hold nothing of an address, a key or a header's value.
    """
    return _parsed(text, _classify_endpoint, {"min_score"})


def _parsed(text: str, build: Callable[[str, dict[str, object]], T], more: set[str]) -> Mapping[str, T]:
    if not text:
        return MappingProxyType({})
    try:
        given = json.loads(text, object_pairs_hook=_no_doubles)
    except RecursionError:
        raise ValueError("it is not JSON") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON, at character {error.pos}") from None
    if not isinstance(given, dict) or len(given) > _MOST_ENDPOINTS:
        raise ValueError(f"it is not an object of at most {_MOST_ENDPOINTS} endpoints by their names")
    allowed = {"url", "headers", "model", "timeout_s"} | more
    found = {}
    for name, endpoint in given.items():
        if not NAME.fullmatch(name) or name.startswith(BUILTIN):
            raise ValueError(
                f"{name[:64]!r} is no name: 1 to 64 letters, digits and . _ : -, and not beginning with {BUILTIN}"
            )
        if not isinstance(endpoint, dict):
            raise ValueError(f"{name!r} is not an object")
        if unknown := sorted(endpoint.keys() - allowed):
            raise ValueError(f"{name!r} has {unknown[0][:64]!r}; it may have {', '.join(sorted(allowed))}")
        found[name] = build(name, endpoint)
    return MappingProxyType(found)


def _no_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise ValueError("a name is there twice")
    return held


def _rerank_endpoint(name: str, given: dict[str, object]) -> RerankEndpoint:
    wanted = _one_of(name, given, "format", get_args(RerankFormat))
    scores = _one_of(name, given, "scores", get_args(Scores))
    model = _model(name, given)
    if wanted != "tei" and not model:
        raise ValueError(f"{name!r} needs model: the format {wanted} names one")
    return RerankEndpoint(_address(name, given), cast(RerankFormat, wanted), model, cast(Scores, scores))


def _classify_endpoint(name: str, given: dict[str, object]) -> ClassifyEndpoint:
    least = given.get("min_score", DEFAULT_MIN_SCORE)
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise ValueError(f"min_score of {name!r} is no number from 0 to 1")
    return ClassifyEndpoint(_address(name, given), _model(name, given), float(least))


def _one_of(name: str, given: dict[str, object], key: str, known: tuple[str, ...]) -> str:
    value = given.get(key, known[0])
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{key} of {name!r} is none of {', '.join(known)}")
    return value


def _model(name: str, given: dict[str, object]) -> str:
    model = given.get("model", "")
    if not isinstance(model, str) or len(model) > _LONGEST_MODEL or not model.isprintable():
        raise ValueError(f"model of {name!r} is no name")
    return model


def _address(name: str, given: dict[str, object]) -> Address:
    url = given.get("url")
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise ValueError(f"url of {name!r} is no address like http://host:port/rerank")
    timeout_s = given.get("timeout_s")
    if timeout_s is not None:
        number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
        if not number or not 0 < cast(float, timeout_s) <= _LONGEST_TIMEOUT_S:
            raise ValueError(f"timeout_s of {name!r} is no number above 0 and at most {_LONGEST_TIMEOUT_S:g}")
    return Address(url, _headers(name, given), None if timeout_s is None else float(cast(float, timeout_s)))


def _headers(name: str, given: dict[str, object]) -> Mapping[str, str]:
    headers = given.get("headers", {})
    if not isinstance(headers, dict):
        raise ValueError(f"headers of {name!r} is not an object")
    for header, value in headers.items():
        if not _HEADER.fullmatch(header):
            raise ValueError(f"a header of {name!r} has no name of a header")
        if header.lower() in _TAKEN:
            raise ValueError(f"{header!r} of {name!r} is a header of the request itself")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the value of {header!r} of {name!r} can be carried by no header")
    if len({header.lower() for header in headers}) != len(headers):
        raise ValueError(f"two headers of {name!r} have the same name")
    return MappingProxyType(dict(headers))
