"""What the shipped model finds, and that it finds nothing where nothing was stored: every leg, the shipped settings."""

from collections.abc import Iterator

import pytest
from support.up import UpProcess

from loom_client import Loom, MemoryInput

USER = "shipped-model"

FACTS = {
    "The cat is called Minou and she is afraid of thunderstorms.": "What is the name of our cat?",
    "Dinner with the architect is on Thursday at half past seven.": "When do we meet the architect for dinner?",
    "The server in the basement runs Debian and is rebooted every Sunday.": "Which operating system has the server?",
    "Marta is allergic to peanuts and to penicillin.": "What is Marta allergic to?",
    "Our landlord wants the rent by the third of each month.": "When is the rent due?",
    "The spare key hangs behind the fuse box in the hall.": "Where is the spare key?",
    "Grandfather worked as a train driver between Lyon and Geneva.": "What did grandfather do for a living?",
    "The red bicycle has a flat tyre since the trip to the lake.": "What is wrong with the red bicycle?",
    "For the exam Jonas must know organic chemistry up to chapter nine.": "What does Jonas have to learn?",
    "The insurance covers water damage but no theft.": "Does the insurance pay for a burglary?",
}
NEVER_STORED = (
    "How many moons does Jupiter have?",
    "What is the boiling point of tungsten?",
    "Who won the football world cup in 1974?",
    "How do I knit a scarf in moss stitch?",
    "Which king built the palace of Versailles?",
    "How are volcanoes formed under the ocean?",
    "What is the capital of Mongolia?",
    "How does a quantum computer factor numbers?",
)
RECALL_AT_3 = 0.9
"""Of a question in other words, by vectors alone and by both legs; what the manual states."""


@pytest.fixture(scope="module")
def client(up: UpProcess) -> Iterator[Loom]:
    with Loom(up.http_url, up.token) as client:
        client.memory.set_many([MemoryInput(value=fact, user_id=USER) for fact in FACTS])
        yield client


@pytest.mark.parametrize("mode", ["hybrid", "vector", "lexical"])
@pytest.mark.parametrize("question", NEVER_STORED)
def test_a_question_about_what_was_never_stored_finds_nothing_or_plainly_low_rows(
    client: Loom, question: str, mode: str
) -> None:
    found = client.memory.search(question, user_id=USER, search_mode=mode)
    assert [hit.memory.value for hit in found.hits if not hit.low] == []


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_a_question_in_other_words_finds_what_answers_it(client: Loom, mode: str) -> None:
    def is_found(fact: str, question: str) -> bool:
        hits = client.memory.search(question, user_id=USER, search_mode=mode, top_k=3).hits
        return any(hit.memory.value == fact and not hit.low for hit in hits)

    found = [question for fact, question in FACTS.items() if is_found(fact, question)]
    assert len(found) >= len(FACTS) * RECALL_AT_3, set(FACTS.values()) - set(found)


def test_of_two_employers_the_present_one_comes_first(client: Loom) -> None:
    told = {"Priya": ("Acme", "Globex"), "Tomas": ("Initech", "Umbrella")}
    for name, employers in told.items():
        for employer in employers:
            client.memory.set(f"{name} works at {employer}", kind="fact", user_id=name)
        hits = client.memory.search(f"Where does {name} work?", user_id=name).hits
        assert [hit.memory.value for hit in hits[:1] if hit.memory] == [f"{name} works at {employers[1]}"]
