r"""Turns text into terms for the lexical leg: one analyser, run at write and at query.

A word becomes its folded, lightly stemmed form. An identifier (`ZX-4417-Q`, `C:\src\main.py`, `fooBar`, an e-mail
address, a URL, a version) becomes itself, its segments and its parts, so it is found by any of them. Scripts written
without spaces (and Hangul, whose particles stick to the word) become single characters and overlapping pairs.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from threading import local
from typing import NamedTuple

import regex
import Stemmer

MAX_TERMS = 65_535
"""Most terms kept of one text: what a UInt16 counts, and more than a value of 64 KiB in a spaced script yields."""

MAX_CHARS = 131_072
"""Characters that are analysed: twice the longest value, which bounds the work whoever calls."""

MAX_QUERY_TERMS = 64
"""Most distinct terms of one query; the rarest kinds (whole identifiers, then words) are kept first.

Source: the statement's work grows with rows x terms; a query of 8 KiB is pasted text, whose first terms identify it.
"""

MAX_TERM_CHARS = 256
"""Longest term; a longer run is indexed by its parts and this prefix."""

IDENTIFIER_WEIGHT = 2.0
"""Weight of a whole identifier in a query, above any of its parts."""

PART_WEIGHT = 0.5
"""Weight of a part of an identifier in a query; a word weighs 1."""

_FUNCTION_WORDS = """
a about after again all also am an and any are as at be because been before being both but by can could did do does
doing don't didn't doesn't isn't wasn't aren't weren't won't can't couldn't wouldn't shouldn't haven't hasn't down
during each few for from further had has have having he her here hers him his how i i'm i've i'd i'll if in into is it
it's its just me more most my no nor not now of off on once only or other our ours out over own same she should so
some such than that that's the their theirs them then there these they they're this those through to too until up very
was we were what what's when where which while who who's whom why will with would you you're your yours
"""

STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English function words. They are stored, never counted in a text's length, and asked for only when nothing else is.

Source: the list of the retrieval harness, with contractions; removing it cost nothing and gained .06 recall@10 with
stems (measured: bench/locomo.py, 2026-11-30).
"""

# Chinese, Japanese, Thai, Lao, Khmer and Burmese write no spaces; Hangul joins particles to the word.
_UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30fc\u3005\u3007"
)
_LETTER = rf"[\p{{L}}\p{{N}}\p{{M}}_--[{_UNSPACED}]]"
_CONNECTOR = r"(?:[-.'’@&=?#%~+]|:?[/\\]{1,2}|:)"
# The quantifiers are possessive, so that no run of letters or connectors is ever tried twice: the match is linear. A
# chain of more than 65 runs is no identifier; it continues as the next token.
_TOKEN = regex.compile(
    rf"(?P<unspaced>[{_UNSPACED}]++)|(?P<spaced>{_LETTER}++(?:{_CONNECTOR}{_LETTER}++){{0,64}}+(?:\+\+|\#)?+)", regex.V1
)
_SEGMENT_BREAK = regex.compile(r"[/\\:@&=?#%~+]+")
_PART_BREAK = regex.compile(r"[^\p{L}\p{N}\p{M}]+")
_CAMEL_BREAK = regex.compile(r"(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})", regex.V1)
_DIGIT_BREAK = regex.compile(r"(?<=\p{L})(?=\p{N})|(?<=\p{N})(?=\p{L})", regex.V1)
_SUFFIX = regex.compile(r"'(?:s|ll|re|ve|d|m)$")
_COMPOUND = regex.compile(r"\p{L}+(?:[-_']\p{L}+){1,3}")
_STRUCTURE = regex.compile(r"[_.:@#\\]")
_ORDINAL = regex.compile(r"\d+[a-z]{1,2}")
_STEMMABLE = regex.compile(r"[a-z]{3,40}")
_LATIN = regex.compile(r"\p{Latin}")
_LATIN_MARK = regex.compile(r"[\u0300-\u036f]+")
# Normalisation sorts a run of combining marks in quadratic time; no language stacks more than a few.
_MARK_RUN = regex.compile(r"(\p{M}{8})\p{M}++")

_MIN_IDENTIFIER_CHARS = 4
_MAX_SPLIT_CHARS = 64  # a longer run of mixed case or digits is encoded data, whose fragments mean nothing
_MAX_DIGIT_PARTS = 2  # `9router`, `iphone15`; more changes than one are a hash

_thread = local()


class AnalyzedText(NamedTuple):
    """What a stored row keeps of its value.

    Attributes:
        term_ids: UInt32 ids in order of appearance, duplicates kept, at most `MAX_TERMS`.
        dl: UInt16 length for BM25: words, identifiers and pairs, without stop words and without parts.
    """

    term_ids: list[int]
    dl: int


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One distinct term that a query asks for.

    Attributes:
        term: The folded, stemmed term.
        term_id: Its UInt32 id.
        weight: Its share in BM25 relative to a plain word's 1.
        is_identifier: True for a whole identifier, which outranks every looser match.
    """

    term: str
    term_id: int
    weight: float
    is_identifier: bool


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """The distinct terms of a query, as three parallel arrays for the lexical statement."""

    terms: tuple[QueryTerm, ...]

    @property
    def term_ids(self) -> list[int]:
        """The ids, `Array(UInt32)`."""
        return [term.term_id for term in self.terms]

    @property
    def weights(self) -> list[float]:
        """The weights, `Array(Float64)`."""
        return [term.weight for term in self.terms]

    @property
    def identifiers(self) -> list[int]:
        """1 where the term is a whole identifier, else 0, `Array(UInt8)`."""
        return [int(term.is_identifier) for term in self.terms]


class _Kind(Enum):
    """What a term is to its text."""

    WORD = 1
    STOP_WORD = 2
    IDENTIFIER = 3
    PAIR = 4
    SEGMENT = 5
    PART = 6
    CHARACTER = 7


_KEPT_CHARS = 40
_COUNTED = frozenset({_Kind.WORD, _Kind.IDENTIFIER, _Kind.PAIR})
_QUERY_WEIGHTS = {_Kind.IDENTIFIER: IDENTIFIER_WEIGHT, _Kind.PART: PART_WEIGHT}


def analyze_text(text: str) -> AnalyzedText:
    """Analyses a value for storage. Never raises; linear in the length of `text`, up to `MAX_CHARS`."""
    ids: list[int] = []
    dl = 0
    for term, kind in _terms(text, with_characters=True):
        ids.append(term_id(term))
        dl += kind in _COUNTED
        if len(ids) == MAX_TERMS:
            break
    return AnalyzedText(ids, dl)


def analyze_query(text: str) -> AnalyzedQuery:
    """Analyses a query, from which known names were already taken out (`query_cues.QueryCues.text`).

    Stop words are left out unless nothing else remains. The result is empty only when `text` holds no letter or digit.
    Never raises; linear in the length of `text`, up to `MAX_CHARS`.
    """
    found: dict[str, _Kind] = {}
    stop_words: dict[str, _Kind] = {}
    for scanned, (term, kind) in enumerate(_terms(text, with_characters=False)):
        if scanned == MAX_TERMS:
            break
        kinds = stop_words if kind is _Kind.STOP_WORD else found
        if term not in kinds or _weight(kind) > _weight(kinds[term]):
            kinds[term] = kind
    # The sort is stable: within one weight the first terms of the query are kept.
    kept = sorted((found or stop_words).items(), key=lambda item: -_weight(item[1]))[:MAX_QUERY_TERMS]
    return AnalyzedQuery(
        tuple(QueryTerm(term, term_id(term), _weight(kind), kind is _Kind.IDENTIFIER) for term, kind in kept)
    )


@lru_cache(maxsize=65_536)
def term_id(term: str) -> int:
    """Returns the UInt32 id of a term: the same in every process and version (stored rows depend on it)."""
    # A lone surrogate cannot be stored, but it must not stop an analysis either.
    digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def _weight(kind: _Kind) -> float:
    return _QUERY_WEIGHTS.get(kind, 1.0)


def _terms(text: str, *, with_characters: bool) -> Iterator[tuple[str, _Kind]]:
    """Yields the terms of `text` in order; single characters of unspaced scripts only when asked for."""
    text = text[:MAX_CHARS]
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _MARK_RUN.sub(r"\1", text))
    for match in _TOKEN.finditer(text):
        unspaced = match["unspaced"]
        if unspaced is None:
            yield from _spaced_terms(match["spaced"])
        else:
            yield from _unspaced_terms(unspaced.casefold(), with_characters=with_characters)


def _unspaced_terms(run: str, *, with_characters: bool) -> Iterator[tuple[str, _Kind]]:
    """Yields overlapping pairs; a lone character counts as a pair, so that it is found and counted."""
    if len(run) == 1:
        yield run, _Kind.PAIR
        return
    for index in range(len(run) - 1):
        if with_characters:
            yield run[index], _Kind.CHARACTER
        yield run[index : index + 2], _Kind.PAIR
    if with_characters:
        yield run[-1], _Kind.CHARACTER


def _spaced_terms(token: str) -> Iterable[tuple[str, _Kind]]:
    """Returns a word, or an identifier whole, in segments (a path's names) and in parts.

    Most tokens come again and again: kept, they take a fifth of the time (measured 2026-11-30).
    """
    return _kept_terms(token) if len(token) <= _KEPT_CHARS else _token_terms(token)


@lru_cache(maxsize=65_536)
def _kept_terms(token: str) -> tuple[tuple[str, _Kind], ...]:
    return tuple(_token_terms(token))


def _token_terms(token: str) -> Iterator[tuple[str, _Kind]]:
    token = _SUFFIX.sub("", token.replace("’", "'"))
    whole = _fold(token[:MAX_TERM_CHARS])
    if whole in STOP_WORDS:
        yield _stem(whole), _Kind.STOP_WORD
        return
    segments = [segment for segment in _SEGMENT_BREAK.split(token) if segment]
    parts = [part for segment in segments for part in _parts(segment)]
    yield _stem(whole), _Kind.IDENTIFIER if _is_identifier(whole, token) else _Kind.WORD
    seen = {whole}
    for segment in segments:
        folded = _fold(segment[:MAX_TERM_CHARS])
        if folded not in seen:
            seen.add(folded)
            yield _stem(folded), _Kind.SEGMENT
    if _COMPOUND.fullmatch(token):
        parts.append("".join(_PART_BREAK.split(token)))  # `e-mail` is also `email`, `foo_bar` is also `foobar`
    for part in parts:
        folded = _fold(part[:MAX_TERM_CHARS])
        if folded not in seen:
            yield _stem(folded), _Kind.STOP_WORD if folded in STOP_WORDS else _Kind.PART


def _parts(segment: str) -> Iterator[str]:
    """Yields the parts of a segment: between punctuation, at a change of case, between letters and digits."""
    for run in _PART_BREAK.split(segment):
        if len(run) > _MAX_SPLIT_CHARS:
            yield run
            continue
        for piece in _CAMEL_BREAK.split(run):
            digits = _DIGIT_BREAK.split(piece)
            if 1 < len(digits) <= _MAX_DIGIT_PARTS:
                yield from digits
            elif piece:
                yield piece


def _is_identifier(whole: str, token: str) -> bool:
    """Says whether a token is a name made for machines; `well-known`, `and/or`, `20th` are not."""
    if len(whole) < _MIN_IDENTIFIER_CHARS or _ORDINAL.fullmatch(whole):
        return False
    if _STRUCTURE.search(whole) or _CAMEL_BREAK.search(token):
        return True
    return any(map(str.isalpha, whole)) and any(map(str.isdigit, whole))


def _fold(token: str) -> str:
    """Casefolds, and takes the accents off Latin letters (`cafe` finds `café`); other scripts keep their marks."""
    token = token.casefold()
    if token.isascii() or _LATIN.search(token) is None:
        return token
    return unicodedata.normalize("NFC", _LATIN_MARK.sub("", unicodedata.normalize("NFD", token)))


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    """Stems an English-looking word: Latin letters only, so no other script and no identifier is touched."""
    if _STEMMABLE.fullmatch(word) is None:
        return word
    stemmer = getattr(_thread, "stemmer", None)
    if stemmer is None:
        # One for each thread: the library's objects may not be shared. Its own cache is off, `_stem` has one.
        stemmer = _thread.stemmer = Stemmer.Stemmer("english", 0)
    return str(stemmer.stemWord(word))
