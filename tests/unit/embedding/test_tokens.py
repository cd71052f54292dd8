"""Tokens of remote models: exact for OpenAI, high for Gemini, without a network."""

import itertools
import subprocess
import sys
import textwrap

import pytest

from loom_embedding.domain.chunking import chunk_spans
from loom_embedding.domain.embedder import Tokens
from loom_embedding.providers.tokens import CautiousTokens, Cl100kTokens

TEXTS = {
    # Source: OpenAI's cookbook on counting tokens where it has the text, else tiktoken 0.14.0; 2026-11-30.
    "": 0,
    "hello world": 2,
    "The user prefers dark mode.": 6,
    "tiktoken is great!": 6,
    "antidisestablishmentarianism": 6,
    "2 + 2 = 4": 7,
    "<|endoftext|>": 7,
    "お誕生日おめでとう": 9,
    "  \n\n  x = 1": 6,
}
HARD = [
    "👩‍👩‍👧‍👦" * 40,
    "東京都に住んでいます。" * 60,
    "word " * 500,
    "a" * 3000,
    " " * 900,
    "\ud83d lone",
    "é" * 700,
    "x\n" * 400,
]


@pytest.fixture(scope="module")
def cl100k() -> Cl100kTokens:
    return Cl100kTokens()


@pytest.mark.parametrize("text", TEXTS)
def test_openais_tokens_are_counted_exactly(text: str, cl100k: Cl100kTokens) -> None:
    assert len(cl100k.spans(text)) == TEXTS[text]


def test_a_token_lies_where_its_word_begins_and_not_in_the_space_before_it(cl100k: Cl100kTokens) -> None:
    assert [tuple(span) for span in cl100k.spans("dark mode, please")] == [(0, 4), (5, 9), (9, 10), (11, 17)]


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_texts_of_every_kind_are_cut_into_chunks_that_fit_and_leave_nothing_out(
    text: str, cl100k: Cl100kTokens
) -> None:
    tokens: Tokens
    for tokens in (cl100k, CautiousTokens()):
        chunks = chunk_spans(text, tokens, 100)
        assert chunks[0].start == 0
        assert chunks[-1].end == len(text)
        for before, after in itertools.pairwise(chunks):
            assert before.start < after.start <= before.end < after.end
        assert all(len(tokens.spans(text[chunk.start : chunk.end])) <= 100 for chunk in chunks)


@pytest.mark.parametrize(
    "text",
    [
        "The user prefers dark mode.",
        "Kubernetes restarts the pod after a crash; see the log of 2026-11-30T13:05:00Z.",
        "def main() -> int:\n    return len(sys.argv)  # 12345678901234567890\n",
        "東京都に住んでいます",
        "Привет, как дела?",
        "👩‍👩‍👧‍👦",
        "c2VjcmV0LW9mLXRoZS10ZXN0LWFuZC1tb3JlCg==",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ],
)
def test_the_cautious_count_is_never_below_the_exact_one_of_another_large_vocabulary(
    text: str, cl100k: Cl100kTokens
) -> None:
    assert len(CautiousTokens().spans(text)) >= len(cl100k.spans(text))


def test_the_cautious_count_of_english_is_not_absurd(cl100k: Cl100kTokens) -> None:
    text = "The lighthouse keeper wrote one line in his book every evening. " * 20
    assert len(CautiousTokens().spans(text)) < 2.5 * len(cl100k.spans(text))


def test_the_vocabulary_loads_where_every_socket_is_refused() -> None:
    script = """
        import socket

        def refuse(*arguments, **more):
            raise AssertionError("a socket was opened")

        socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
        from loom_embedding.providers.tokens import Cl100kTokens
        print(len(Cl100kTokens().spans("hello world")))
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
