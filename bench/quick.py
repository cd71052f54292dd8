"""A quick look before a default model changes: thirty questions of LoCoMo, answered by `memory.ask` and judged.

It asks a Loom of its own that takes its models from the keys in the environment, and has each answer judged by a model
against the answer that the data set gives. Every row is written to a CSV. The sample is small: it shows that a model
broke something, not that one is a little better.
"""

import csv
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
import openai

from bench.datasets import Conversation, Question, locomo
from bench.locomo import store_conversations
from bench.server import loom
from loom_client import Loom

QUESTIONS: Final = 30
JUDGE: Final = "gpt-6-luna"
_RUBRIC: Final = (
    "You grade one answer. Reply with the single word yes where it states what the reference states, whatever its "
    "wording, and with no where it states something else, less, or nothing."
)
# Of Loom's settings only those that name its models pass on to the Loom that is asked.
_PASSED: Final = ("LOOM_LLM_", "LOOM_EMBEDDING_", "LOOM_MEMORY_ASK_", "LOOM_OPENAI_", "LOOM_GEMINI_", "LOOM_ANTHROPIC_")


@dataclass(frozen=True)
class Judged:
    """One question with what became of it."""

    question: Question
    answer: str
    abstain_code: str
    model: str
    is_right: bool


def run(data: Path, judge: str) -> None:
    """Asks, judges, prints the share of right answers and where the rows are."""
    if not os.environ.get("OPENAI_API_KEY"):
        sys.exit("bench: quick needs real providers: set OPENAI_API_KEY for the judge, and the keys of the models")
    asked = sample(locomo(data))
    variables = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    with loom(variables=variables) as server, Loom(server.http_url, server.token, timeout_s=120) as client:
        if fakes := _fakes(server.http_url):
            sys.exit(f"bench: quick needs real providers, and this Loom runs on {', '.join(fakes)}")
        store_conversations(client, list({conversation.id: conversation for conversation, _ in asked}.values()))
        answers = [client.memory.ask(question.text, user_id=conversation.id) for conversation, question in asked]
    with openai.OpenAI() as sdk:
        rows = [
            Judged(
                question,
                answer.answer,
                answer.abstain_code,
                answer.model,
                is_right(sdk, judge, question, answer.answer),
            )
            for (_, question), answer in zip(asked, answers, strict=True)
        ]
    path = write(rows)
    print(f"{sum(row.is_right for row in rows)} of {len(rows)} right, judged by {judge}; rows: {path}")


def sample(conversations: Sequence[Conversation]) -> list[tuple[Conversation, Question]]:
    """Returns the same thirty questions each time, as many of each category as of any other."""
    by_category: dict[str, list[tuple[Conversation, Question]]] = {}
    for conversation in conversations:
        for question in conversation.questions:
            if question.answer:
                by_category.setdefault(question.category, []).append((conversation, question))
    draw = random.Random(30)
    each = QUESTIONS // max(1, len(by_category))
    chosen, rest = [], []
    for _, found in sorted(by_category.items()):
        draw.shuffle(found)
        chosen += found[:each]
        rest += found[each:]
    draw.shuffle(rest)
    return (chosen + rest)[:QUESTIONS]


def is_right(sdk: openai.OpenAI, judge: str, question: Question, answer: str) -> bool:
    """Has a model say whether an answer states what the reference states; an empty answer does not."""
    if not answer.strip():
        return False
    told = sdk.chat.completions.create(
        model=judge,
        messages=[
            {"role": "system", "content": _RUBRIC},
            {"role": "user", "content": f"Question: {question.text}\nReference: {question.answer}\nAnswer: {answer}"},
        ],
    )
    return (told.choices[0].message.content or "").strip().lower().startswith("yes")


def write(rows: Sequence[Judged]) -> Path:
    """Writes the rows to a new CSV in the directory for temporary files."""
    with tempfile.NamedTemporaryFile("w", prefix="loom-bench-quick-", suffix=".csv", newline="", delete=False) as file:
        table = csv.writer(file)
        table.writerow(["category", "question", "reference", "answer", "abstain_code", "model", "right"])
        for row in rows:
            asked = row.question
            table.writerow(
                [asked.category, asked.text, asked.answer, row.answer, row.abstain_code, row.model, int(row.is_right)]
            )
    return Path(file.name)


def _fakes(http_url: str) -> list[str]:
    health = httpx2.get(f"{http_url}/v1/health", timeout=30, trust_env=False).json()
    codes = {problem["code"] for problem in health["problems"]}
    return sorted(codes & {"fake_llm", "llm_key_missing", "fake_embedder", "embedder_key_missing"})
