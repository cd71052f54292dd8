"""Splits a text into overlapping chunks that each fit the model's window, so that nothing is left out.

The cut follows the model's own tokens. A chunk that is cut out of its text may have more tokens than it had inside it
(a word's second half is another word), so every chunk is counted again on its own and shortened until it fits.
"""

import re
from collections.abc import Sequence
from typing import Final

from loom_embedding.domain.embedder import Span, Tokens

OVERLAP_TOKENS: Final = 32
"""Tokens that a chunk repeats of the one before, so that a sentence on the seam is whole in one of them.

Source: chosen; about two short sentences, an eighth of MiniLM's window.
"""

# Source: chosen. How far back, as a share of the chunk, a better place for the cut is looked for.
_LOOK_BACK: Final = 0.2

# Letters of scripts that part their words by spaces, and digits: Latin, Greek, Cyrillic.
_ENDLESS: Final = re.compile(r"[0-9A-Za-z\u00c0-\u024f\u0370-\u03ff\u0400-\u04ff]{100,}")

# These are not followed by a space.
_CJK_SENTENCE_ENDS: Final = frozenset("。！？")
_SENTENCE_ENDS: Final = frozenset(".!?…\n") | _CJK_SENTENCE_ENDS


def shortened_words(text: str, most_letters: int) -> str:
    """Returns `text` with what comes behind the first letters of an endless word made blank; its length stays.

    A run of letters and digits that no word is as long as means nothing behind its first pieces, and costs a vector for
    every few hundred letters. Scripts that are written without spaces are left whole.
    """
    if len(text) <= most_letters:
        return text
    return _ENDLESS.sub(
        lambda run: run[0] if len(run[0]) <= most_letters else run[0][:most_letters].ljust(len(run[0])), text
    )


def chunk_spans(
    text: str,
    tokens: Tokens,
    budget_tokens: int,
    *,
    overlap_tokens: int = OVERLAP_TOKENS,
    found: Sequence[Span] | None = None,
) -> list[Span]:
    """Returns chunks that cover every character of `text`, in order; always at least one.

    Args:
        text: Any text; an empty one has one empty chunk.
        tokens: The model's tokens.
        budget_tokens: Most tokens of one chunk, special tokens not counted; at least 8.
        overlap_tokens: Tokens that two neighbours share at least where they can; capped at a quarter of the budget.
        found: The tokens of the text, where the caller knows them.
    """
    if budget_tokens < 8:
        raise ValueError("a window of fewer than 8 tokens cannot hold every character")
    if found is None:
        if _surely_fits(text, budget_tokens):
            return [Span(0, len(text))]
        found = tokens.spans(text)
    if len(found) <= budget_tokens:
        return [Span(0, len(text))]
    overlap = min(overlap_tokens, budget_tokens // 4)
    chunks: list[Span] = []
    first = 0  # the token that the next chunk begins with
    start = 0
    while True:
        left = len(found) - first
        rest_fits = left <= budget_tokens and _fits(text[start:], tokens, budget_tokens)
        behind = None if rest_fits else _cut(text, found, first, _even_share(left, budget_tokens, overlap), start)
        if behind is None:
            chunks.append(Span(start, len(text)))
            return chunks
        while not _fits(text[start : found[behind].start], tokens, budget_tokens):
            shorter = _earlier(found, behind, start)
            if shorter is None:
                break  # one character; no text has one of more tokens than the smallest window
            behind = shorter
        end = found[behind].start
        chunks.append(Span(start, end))
        first = _next_first(text, found, behind, overlap, start)
        start = found[first].start


def _even_share(left: int, budget: int, overlap: int) -> int:
    """Returns how many of `left` tokens the next chunk takes, so that the last chunk is no crumb."""
    chunks = max(2, -(-(left - overlap) // (budget - overlap)))
    return min(budget, left - 1, -(-(left + overlap * (chunks - 1)) // chunks))


def _surely_fits(text: str, budget_tokens: int) -> bool:
    """Returns whether a text is so short that its tokens need not be counted, which for a question takes 0.15 ms.

    No tokenizer here makes two tokens of one byte; the factor is for those that take accented letters apart first.
    """
    return 2 * len(text) <= budget_tokens and 2 * len(text.encode("utf-8", "surrogatepass")) <= budget_tokens


def _fits(chunk: str, tokens: Tokens, budget: int) -> bool:
    return len(tokens.spans(chunk)) <= budget


def _cut(text: str, found: Sequence[Span], first: int, size: int, start: int) -> int | None:
    """Returns the token before which the chunk ends: behind a sentence, else behind a word, else where it must.

    None where the text cannot be cut any further.
    """
    behind = first + size
    between_words = None
    for candidate in range(behind, max(first + 1, behind - int(size * _LOOK_BACK)) - 1, -1):
        at = found[candidate].start
        if at <= start or not (text[at - 1].isspace() or text[at - 1] in _CJK_SENTENCE_ENDS):
            continue
        if between_words is None:
            between_words = candidate
        if text[max(start, at - 16) : at].rstrip(" \t")[-1:] in _SENTENCE_ENDS:
            return candidate
    if between_words is not None:
        return between_words
    while behind < len(found) and found[behind].start <= start:  # tokens may share their first characters
        behind += 1
    return behind if behind < len(found) else None


def _earlier(found: Sequence[Span], behind: int, start: int) -> int | None:
    """Returns the last token before `behind` that begins earlier and still leaves a chunk."""
    for candidate in range(behind - 1, -1, -1):
        if found[candidate].start < found[behind].start:
            return candidate if found[candidate].start > start else None
    return None


def _next_first(text: str, found: Sequence[Span], behind: int, overlap: int, start: int) -> int:
    """Returns the token that the next chunk begins with: `overlap` back, at a word's beginning, but behind `start`."""
    wanted = behind
    while wanted > 0 and behind - wanted < overlap and found[wanted - 1].start > start:
        wanted -= 1
    for candidate in range(wanted, behind):
        at = found[candidate].start
        if at > start and text[at - 1].isspace():
            return candidate
    return wanted
