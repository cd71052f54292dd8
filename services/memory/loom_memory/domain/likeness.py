"""Whether two texts that a model finds near say the same, or cannot both hold; by their words alone.

A cosine cannot tell a revision from a contradiction, nor two facts of one template from each other ("x costs 5", "y
costs 7"). So a verdict needs the cosine and the words, and where the words leave a doubt there is none: a pair that is
passed over is stored as two memories, a wrong verdict would lose one.
"""

import unicodedata
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property, lru_cache
from threading import local
from typing import Final, NamedTuple

import regex
import Stemmer

from loom_memory.domain.likeness_words import (
    ANTONYMS,
    ARTICLES,
    COMPARING,
    CONTRACTIONS,
    COUNTED,
    DENSE_PREDICATES,
    DIGITS,
    LIGHT,
    NEGATING_PARTS,
    NEGATIONS,
    NUMBER_WORDS,
    PREDICATES,
    SHARED_BY_MANY,
    SHARED_PARTS,
    TOPIC_ENDINGS,
)

MAX_CHARS: Final = 1_000
"""Longest text that is compared. Source: chosen; a memory of more than a few sentences says more than one thing."""

_LONGEST_DIFFERENCE: Final = 5
_LEAST_SHARED: Final = 0.4
"""Share of the words that two texts have in common before a difference contradicts. Source: chosen and measured with
`bench/gates.py`, like the length above."""
_STATEMENT_WORDS: Final = 6
_LONGEST_SUFFIX: Final = 2
"""Words that may follow a difference where nothing before it was a predicate."""

_DENSE: Final = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー"
_TOKEN: Final = regex.compile(
    rf"(?P<dense>[{_DENSE}])"
    r"|(?P<number>(?<![\p{L}\p{N}])[-−+]?\p{N}+(?:[.,:/-]\p{N}+)*+%?)"
    rf"|(?P<word>[[\p{{L}}\p{{M}}\p{{N}}_]--[{_DENSE}]]+(?:['’.&/@-][[\p{{L}}\p{{M}}\p{{N}}]--[{_DENSE}]]+)*+(?:\+\+|\#)?+)"
    r"|(?P<sign>\p{Sc}|[<>≤≥=%])",
    regex.V1,
)
_CONTRACTED: Final = [(regex.compile(regex.escape(short), regex.IGNORECASE), long) for short, long in CONTRACTIONS]
_SAYING: Final = PREDICATES | SHARED_BY_MANY | COUNTED | NEGATIONS
"""Words that say something of what a text names."""

_ASCII_WORD: Final = regex.compile(r"[a-z]{3,40}")

_thread = local()


class Likeness(StrEnum):
    """What the words of two near texts say."""

    DUPLICATE = "duplicate"
    """The later one says nothing that the earlier one does not."""
    CONFLICT = "conflict"
    """Both speak of the same thing, and not both can hold."""
    NONE = ""
    """Neither is plain."""


class Token(NamedTuple):
    """One word, number or sign; a single character of a script without spaces.

    Attributes:
        text: Folded, as it stands.
        stem: What is compared.
        is_number: Whether it counts or measures.
        is_dense: Whether it is a character of a script without spaces.
    """

    text: str
    stem: str
    is_number: bool
    is_dense: bool


@dataclass(frozen=True)
class Wording:
    """The words of one text."""

    tokens: tuple[Token, ...]
    is_question: bool
    text: str

    @cached_property
    def said(self) -> tuple[Token, ...]:
        """Its tokens without articles."""
        return tuple(token for token in self.tokens if token.text not in ARTICLES)

    @cached_property
    def content(self) -> tuple[Token, ...]:
        """Its tokens without what paraphrases come and go with, and without negations."""
        return tuple(token for token in self.tokens if token.text not in LIGHT and token.text not in NEGATIONS)

    @cached_property
    def negations(self) -> int:
        """How often it turns round what it says; of an even number nothing is left."""
        words = sum(token.text in NEGATIONS or token.text.endswith(("n't", "n’t")) for token in self.tokens)
        return (words + sum(self.text.count(part) for part in NEGATING_PARTS)) % 2

    @cached_property
    def numbers(self) -> Counter[str]:
        """Its numbers."""
        return Counter(token.stem for token in self.tokens if token.is_number)


@lru_cache(maxsize=4_096)
def wording(text: str) -> Wording:
    """Returns the words of a text."""
    folded = unicodedata.normalize("NFKC", text[: MAX_CHARS + 1]).replace("’", "'")
    if "'" in folded:
        for short, long in _CONTRACTED:
            folded = short.sub(long, folded)
    tokens = []
    for match in _TOKEN.finditer(folded):
        raw = match[0]
        lower = raw.casefold().removesuffix("'s")
        is_word = match["word"] is not None
        is_number = match["number"] is not None or lower in NUMBER_WORDS
        tokens.append(
            Token(
                lower, DIGITS.get(lower) or (_stem(lower) if is_word else lower), is_number, match["dense"] is not None
            )
        )
    return Wording(tuple(tokens), folded.rstrip().endswith(("?", "？", "؟")), folded.casefold())


def compare(later: str, earlier: str) -> Likeness:
    """Returns what the words of two near texts say; a longer one than `MAX_CHARS` says neither."""
    if len(later) > MAX_CHARS or len(earlier) > MAX_CHARS:
        return Likeness.NONE
    new, old = wording(later), wording(earlier)
    if not new.content or not old.content or new.is_question != old.is_question:
        return Likeness.NONE
    if is_repetition(new, old):
        return Likeness.DUPLICATE
    return Likeness.CONFLICT if is_contradiction(new, old) else Likeness.NONE


def is_statement(text: str) -> bool:
    """Says whether a text is understood without a key beside it: it has a predicate, or is long enough to have one.

    "12 Elm Street" under `home-address` and under `work-address` is two facts.
    """
    found = wording(text)
    if len(found.content) >= _STATEMENT_WORDS or any(part in found.text for part in DENSE_PREDICATES):
        return True
    return len(found.tokens) >= 3 and any(token.text in _SAYING for token in found.tokens)


def is_repetition(new: Wording, old: Wording) -> bool:
    """Says whether the new text says nothing that the old one does not.

    Both have the same numbers, negation and content, in the same order, or with one phrase moved from the end to the
    beginning: "every Sunday the cache is emptied" repeats "the cache is emptied every Sunday", and "Ben manages Ana"
    does not repeat "Ana manages Ben". In a script without spaces nothing may move.
    """
    if new.numbers != old.numbers or new.negations != old.negations:
        return False
    ours, theirs = _sequence(new.content), _sequence(old.content)
    if len(ours) != len(theirs):
        return False
    if any(token.is_dense for token in new.tokens):
        return ours == theirs
    return any(ours[turn:] + ours[:turn] == theirs for turn in range(len(ours)))


def is_contradiction(new: Wording, old: Wording) -> bool:
    """Says whether both texts speak of the same thing and not both can hold."""
    if new.negations != old.negations:
        return _is_turned_round(new, old)
    return _is_opposite(new, old) or _is_swapped(new, old) or _is_replaced(new, old)


def _is_turned_round(new: Wording, old: Wording) -> bool:
    """The same words with and without a negation."""
    ours, theirs = Counter(_sequence(new.content)), Counter(_sequence(old.content))
    apart = (ours - theirs).total() + (theirs - ours).total()
    if any(token.is_dense for token in new.tokens):
        matcher = SequenceMatcher(None, _sequence(new.tokens), _sequence(old.tokens), autojunk=False)
        return matcher.ratio() >= 0.8 and new.numbers == old.numbers
    return apart <= 1 and new.numbers == old.numbers and len(ours & theirs) >= 2


def _is_opposite(new: Wording, old: Wording) -> bool:
    """The same words but one, whose place its opposite takes."""
    differences = _differences(new.said, old.said)
    if len(differences) != 1:
        return False
    ours, theirs = differences[0]
    return len(ours) == len(theirs) == 1 and frozenset((ours[0].text, theirs[0].text)) in ANTONYMS


def _is_swapped(new: Wording, old: Wording) -> bool:
    """The same words of the same subject, two of which changed places ("tea over coffee", "coffee over tea")."""
    ours, theirs = _sequence(new.said), _sequence(old.said)
    if len(ours) != len(theirs) or sorted(ours) != sorted(theirs) or any(token.is_dense for token in new.tokens):
        return False
    apart = [place for place, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
    if len(apart) != 2 or apart[0] < 2 or _is_shared_by_many(new, apart[0]):
        return False
    return any(token.text in COMPARING for token in new.said[apart[0] : apart[1]])


def _is_replaced(new: Wording, old: Wording) -> bool:
    """The same words but for one stretch, which says something else of the same subject.

    The stretch stands behind the subject and its predicate: what differs before it names another subject. Behind a
    predicate that holds of many things at once it contradicts nothing.
    """
    differences = _differences(new.said, old.said)
    if len(differences) != 1:
        return False
    ours, theirs = differences[0]
    begin = _common_prefix(new.said, old.said)
    prefix, suffix = new.said[:begin], new.said[begin + len(ours) :]
    if not ours or not theirs or max(len(ours), len(theirs)) > _LONGEST_DIFFERENCE or not _has_subject(prefix):
        return False
    shared = [token for token in (*prefix, *suffix) if token.text not in LIGHT]
    longest = max(len(new.said), len(old.said))
    if not shared or (len(prefix) + len(suffix)) < _LEAST_SHARED * longest:
        return False
    if all(token.text in LIGHT or token.text in NEGATIONS for token in (*ours, *theirs)):
        return False
    counts = [any(token.is_number for token in part) for part in (ours, theirs)]
    numbered = all(counts)
    if any(counts) and not numbered:
        return False
    if numbered and any(not token.is_number and token.text not in LIGHT for token in (*ours, *theirs)):
        # Something else differs beside the number, so that it may count something else.
        return False
    if not numbered and abs(len(ours) - len(theirs)) > 1 and not prefix[-1].is_dense:
        return False
    if _is_shared_by_many(new, begin, numbered=numbered):
        return False
    if any(token.is_dense for token in prefix):
        return any(token.text in DENSE_PREDICATES for token in prefix)
    if prefix[-1].text.endswith(TOPIC_ENDINGS):
        return True
    if any(token.text in PREDICATES for token in prefix[1:]):
        return True
    if numbered:
        # "note 3" and "note 4": a number without a predicate before it tells things apart.
        return False
    return len(suffix) <= _LONGEST_SUFFIX and not any(token.text in PREDICATES for token in suffix)


def _has_subject(prefix: tuple[Token, ...]) -> bool:
    """Says whether what two texts begin with alike is more than a single word, which their difference may belong to."""
    return len(prefix) >= 2 or (len(prefix) == 1 and prefix[0].text.endswith(TOPIC_ENDINGS))


def _is_shared_by_many(text: Wording, begin: int, *, numbered: bool = False) -> bool:
    before = text.said[:begin]
    if any(token.text in SHARED_BY_MANY for token in before):
        return True
    if any(part in text.text for part in SHARED_PARTS):
        return True
    return not numbered and any(token.text in COUNTED for token in before)


def _differences(
    ours: tuple[Token, ...], theirs: tuple[Token, ...]
) -> list[tuple[tuple[Token, ...], tuple[Token, ...]]]:
    """Returns the stretches in which two texts differ."""
    matcher = SequenceMatcher(None, _sequence(ours), _sequence(theirs), autojunk=False)
    return [
        (ours[begin:end], theirs[other:other_end])
        for tag, begin, end, other, other_end in matcher.get_opcodes()
        if tag != "equal"
    ]


def _common_prefix(ours: tuple[Token, ...], theirs: tuple[Token, ...]) -> int:
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one.stem != other.stem:
            return place
    return min(len(ours), len(theirs))


def _sequence(tokens: tuple[Token, ...]) -> list[str]:
    return [token.stem for token in tokens]


def _stem(word: str) -> str:
    if _ASCII_WORD.fullmatch(word) is None:
        return word
    stemmer = getattr(_thread, "english", None)
    if stemmer is None:
        # One per thread: the library's stemmers keep state.
        stemmer = _thread.english = Stemmer.Stemmer("english")
    return str(stemmer.stemWord(word))
