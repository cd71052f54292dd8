"""The quick look at a model: the sample is fixed, and a judge's word decides."""

import asyncio
import csv
from collections import Counter

import openai
import pytest
from support.providers import ProviderStandIn, Reply, chat_completion

from bench import quick
from bench.datasets import Conversation, Question


def conversations() -> list[Conversation]:
    questions = tuple(Question(f"q{number}", "abcd"[number % 4], (0,), f"a{number}") for number in range(200))
    return [Conversation("one", (), (*questions, Question("unanswered", "a", (0,))))]


def test_the_sample_is_the_same_each_time_and_has_every_category() -> None:
    asked = [question for _, question in quick.sample(conversations())]
    assert asked == [question for _, question in quick.sample(conversations())]
    assert len(set(asked)) == quick.QUESTIONS
    assert min(Counter(question.category for question in asked).values()) >= quick.QUESTIONS // 4
    assert all(question.answer for question in asked)


@pytest.mark.parametrize(("told", "right"), [("yes", True), ("Yes.", True), ("no", False), ("", False)])
async def test_an_answer_is_right_where_the_judge_says_so(told: str, right: bool) -> None:
    async with ProviderStandIn().running() as provider:
        provider.rule = lambda request: Reply(body=chat_completion(told))
        with openai.OpenAI(api_key="k", base_url=provider.openai_url, max_retries=0) as sdk:
            asked = Question("Where?", "a", (0,), "Lyon")
            assert await asyncio.to_thread(quick.is_right, sdk, "judge", asked, "In Lyon.") is right
            assert not quick.is_right(sdk, "judge", asked, "  ")
        assert len(provider.requests) == 1


def test_every_row_is_written() -> None:
    path = quick.write([quick.Judged(Question("Où?", "a", (0,), "Lyon"), 'say "Lyon",\nyes', "", "m", True)])
    try:
        with path.open(newline="") as file:
            assert list(csv.reader(file))[1] == ["a", "Où?", "Lyon", 'say "Lyon",\nyes', "", "m", "1"]
    finally:
        path.unlink()
