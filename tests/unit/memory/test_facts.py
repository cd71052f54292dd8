"""What is taken of a model's answer, whatever the model wrote around or into it."""

import base64
import json
import random
from datetime import UTC, datetime

import pytest

from loom_memory.domain.conversation import Message, message_keys, request_id, windows, without_payloads
from loom_memory.domain.facts import fact_key, read_reply

SAID_AT = datetime(2023, 5, 10, 12, 30, tzinfo=UTC)
MESSAGES = [Message("user", text, "Ann", SAID_AT) for text in ("Hello", "I moved to Rome yesterday")]
(WINDOW,) = windows(MESSAGES)
GOOD = (
    '{"facts": [{"fact": "Ann moved to Rome", "subject": "Ann", "when": "yesterday", "message": 2, "kind": "event"}]}'
)


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here are the facts: {GOOD} Done.",
        f"<think>hm {{}}</think>{GOOD}",
        json.dumps(GOOD),
        GOOD.replace('"message": 2', '"message": "2"'),
        GOOD.replace("]}", ",]}"),
        GOOD.replace('"kind": "event"', '"kind": "event", "tags": ["\\ud83d", "move"]'),
        GOOD.replace("Ann moved", "Ann \\u0041nn\\x moved").replace("Ann \\u0041nn\\x moved", "Ann moved"),
    ],
    ids=["plain", "fenced", "prose", "thought", "string", "number as text", "comma", "half a surrogate", "escape"],
)
def test_a_fact_is_read_out_of_any_answer(answer: str) -> None:
    reply = read_reply(answer, WINDOW)
    (fact,) = reply.facts
    assert (fact.text, fact.kind, fact.message, reply.readable) == ("Ann moved to Rome", "event", 1, True)
    assert fact.event_time == datetime(2023, 5, 9, tzinfo=UTC)


def test_a_lone_surrogate_escape_loses_no_fact() -> None:
    reply = read_reply('{"facts": [{"fact": "Ann likes \\ud83d tea"}, {"fact": "Ann lives in Rome"}]}', WINDOW)
    assert [fact.text for fact in reply.facts] == ["Ann likes \ufffd tea", "Ann lives in Rome"]


def test_of_an_answer_that_breaks_off_the_whole_facts_are_kept() -> None:
    facts = [{"fact": f"Ann has met person number {number}", "message": 2} for number in range(300)]
    text = json.dumps({"facts": facts})
    reply = read_reply(text[: len(text) // 2], WINDOW, stopped=True)
    assert reply.truncated
    assert 100 < len(reply.facts) < 300


@pytest.mark.parametrize("answer", ["", "I cannot.", "[]", '{"answer": 1}', '{"facts": "none"}', "}{", "null"])
def test_an_answer_without_a_list_of_facts_cannot_be_read(answer: str) -> None:
    assert not read_reply(answer, WINDOW).readable


@pytest.mark.parametrize("entry", [None, 5, "", "...", {}, {"fact": 7}, {"fact": ""}, [1], {"fact": "!!"}])
def test_an_entry_that_says_nothing_is_left_out(entry: object) -> None:
    reply = read_reply(json.dumps({"facts": [entry, {"fact": "Ann lives in Rome"}]}), WINDOW)
    assert [fact.text for fact in reply.facts] == ["Ann lives in Rome"]


def test_a_fact_keeps_its_subject() -> None:
    reply = read_reply('{"facts": [{"fact": "works at night", "subject": "Bob"}]}', WINDOW)
    assert reply.facts[0].text == "Bob: works at night"


def test_a_fact_that_is_said_twice_is_one() -> None:
    reply = read_reply('{"facts": ["Ann lives in Rome", "ann lives in  Rome."]}', WINDOW)
    assert len(reply.facts) == 1


def test_the_same_fact_has_the_same_key_whenever_it_is_found() -> None:
    one, other = read_reply(GOOD, WINDOW).facts[0], read_reply(f"Again: {GOOD}", WINDOW).facts[0]
    assert fact_key(one) == fact_key(other)


def test_encoded_files_are_left_out_and_words_are_not() -> None:
    data = base64.b64encode(random.Random(1).randbytes(20_000)).decode()
    lines = "\n".join(data[at : at + 76] for at in range(0, 7_600, 76))
    text = without_payloads(f"See {data} and\n{lines}\nand data:image/png;base64,{data}. {'long' * 60} word")
    assert len(text) < 500
    assert "long" * 60 in text


def test_a_conversation_is_read_in_parts_and_a_long_message_in_pieces() -> None:
    long = Message("user", "x " * 40_000)
    messages = [*(Message("user", f"{number} " + "word " * 400) for number in range(30)), long]
    parts = list(windows(messages, 10_000))
    assert all(sum(len(message.content) for message in part.messages) <= 10_000 for part in parts)
    read = [
        (place, message.content) for part in parts for place, message in zip(part.places, part.messages, strict=True)
    ]
    assert [content for place, content in read if place < 30] == [message.content for message in messages[:30]]
    assert "".join(content for place, content in read if place == 30) == long.content
    first = parts[1].places[0]
    assert [message.content[:3] for message in parts[1].before] == [f"{place} w" for place in (first - 2, first - 1)]


def test_keys_of_messages_stay_when_a_conversation_grows() -> None:
    messages = [
        Message("user", "ok"),
        Message("assistant", "Good."),
        Message("user", "ok"),
        Message("user", "x", id="7"),
    ]
    keys = message_keys(messages)
    assert len(set(keys)) == 4
    assert message_keys([*messages, Message("user", "ok")])[:4] == keys
    assert request_id({"user_id": "u"}, messages) != request_id({"user_id": "v"}, messages)
