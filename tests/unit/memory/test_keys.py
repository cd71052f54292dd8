"""Which keys are words, and what they say."""

import pytest
from support.memory_keys import NAMING, SAYING

from loom_memory.app.embedding import Chunk, numbered, with_key
from loom_memory.domain.keys import FIRST_KEY_CHUNK, key_text
from loom_memory.domain.memory import Content, content_key


@pytest.mark.parametrize(("key", "said"), SAYING.items())
def test_a_key_of_words_says_them(key: str, said: str) -> None:
    assert key_text(key) == said


@pytest.mark.parametrize("key", [*NAMING, content_key(Content("a text")), "01M8Q4G06TV48N7RMCZ9BWNRBZ"])
def test_a_key_that_only_names_a_row_says_nothing(key: str) -> None:
    assert key_text(key) == ""


def test_chunks_of_a_key_are_numbered_apart_from_those_of_the_value() -> None:
    found = with_key([Chunk(0, 4, (1.0,)), Chunk(2, 8, (2.0,))], [Chunk(0, 6, (3.0,))])
    assert isinstance(found, list)
    assert [(number, chunk.start_offset, chunk.end_offset) for number, chunk in numbered(found)] == [
        (0, 0, 4),
        (1, 2, 8),
        (FIRST_KEY_CHUNK, 0, 0),
    ]
