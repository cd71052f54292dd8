"""What the fake answers: quotes of the prompt, in the form that the prompt asks for. No model, and it says so."""

import re
from collections.abc import Sequence
from typing import Final

from loom_common.json_text import parse_object
from loom_common.lenient_json import JsonValue

MARK: Final = "[fake-echo]"
"""Begins every answer in prose, so that nobody takes it for a model's."""

# Source: chosen. Enough for a demonstration to look like something, short enough to be read at a glance.
_QUOTES: Final = 2
_ITEMS: Final = 3
_QUOTE_WORDS: Final = 40
_QUOTE_CHARS: Final = 400
_MAX_DEPTH: Final = 6
# Source: chosen. Characters of a prompt that are looked through for quotes: its end, where a question stands, or its
# begin, which is quoted where there is none.
_MOST_READ: Final = 65_536

_LEADING: Final = re.compile(r"^(?:[-*>•]|\d+[.)]|\[[^\]]*\])\s*")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?。！？])\s+")
_WORD: Final = re.compile(r"\w+")
# Words that a question and any evidence share by chance. Source: chosen.
_COMMON: Final = frozenset(
    ["what", "when", "where", "which", "with", "does", "that", "this", "have", "from", "about", "question", "answer"]
)


def prose(user: str, max_tokens: int) -> str:
    """Returns an answer in prose: what of the prompt fits its question best, else the prompt's beginning.

    Args:
        user: What is asked; evidence and question on lines of their own.
        max_tokens: Most words of the answer. The mark is the first, so that no cap cuts it off.
    """
    quotes = evidence(user)
    said = " ".join(f"“{quote}”" for quote in quotes) if quotes else user
    return " ".join([MARK, *said.split()][:max_tokens])


def evidence(user: str, count: int = _QUOTES) -> list[str]:
    """Returns the sentences of a prompt that share most words with its question, best first, of equals in order.

    Nothing where the prompt has no line that is a question, or nothing beside it.
    """
    sentences = _sentences(user[-_MOST_READ:])
    questions = [sentence for sentence in sentences if _is_question(sentence)]
    if not questions or len(sentences) < 2:
        return []
    asked = _telling(questions[-1])
    rest = [sentence for sentence in sentences if not _is_question(sentence)]
    shared = {sentence: len(asked & _telling(sentence)) for sentence in rest}
    best = sorted(shared, key=lambda sentence: -shared[sentence])[:count]
    return [sentence for sentence in best if shared[sentence]]


def shaped(system: str, user: str, max_tokens: int) -> dict[str, JsonValue]:
    """Returns a JSON object in the form that the instructions show, by an example or a JSON schema.

    Texts in it are quotes of the prompt, numbers are 0, choices are the first. `fake` is always there, and true. Where
    the instructions show no form, the object holds the prompt's beginning.
    """
    hint = parse_object(system)
    if not hint.whole or not hint.value:
        return {"fake": True, "echo": prose(user, max_tokens)}
    quotes = [
        _cut(sentence, max_tokens) for sentence in evidence(user, _ITEMS) or _sentences(user[:_MOST_READ])[:_ITEMS]
    ]
    filled = _of_schema(hint.value, quotes, 0) if _is_schema(hint.value) else _like(hint.value, quotes, 0)
    return {"fake": True, **(filled if isinstance(filled, dict) else {})}


def _is_schema(hint: dict[str, JsonValue]) -> bool:
    return hint.get("type") == "object" and isinstance(hint.get("properties"), dict)


def _of_schema(schema: JsonValue, quotes: Sequence[str], depth: int) -> JsonValue:
    """Returns the smallest value that a JSON schema allows, with quotes for its texts."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            properties = schema.get("properties")
            fields = properties if isinstance(properties, dict) else {}
            return {name: _of_schema(field, quotes, depth + 1) for name, field in fields.items()}
        case "array":
            return [_of_schema(schema.get("items"), [quote], depth + 1) for quote in quotes]
        case "string":
            return quotes[0] if quotes else ""
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return None


def _like(example: JsonValue, quotes: Sequence[str], depth: int) -> JsonValue:
    """Returns a value of the same form as an example."""
    if depth > _MAX_DEPTH:
        return None
    match example:
        case bool():
            return False
        case int() | float():
            return 0
        case str():
            # `yes|no` is how prompts write a choice.
            return example.split("|")[0].strip() if "|" in example else (quotes[0] if quotes else "")
        case list():
            return [_like(example[0], [quote], depth + 1) for quote in quotes] if example else []
        case dict():
            return {key: _like(value, quotes, depth + 1) for key, value in example.items()}
        case _:
            return None


def _sentences(text: str) -> list[str]:
    """Returns the sentences of a text without the marks of lists and citations before them, each once."""
    lines = (_LEADING.sub("", line.strip()) for line in text.splitlines())
    parts = (part.strip() for line in lines for part in _SENTENCE_END.split(line))
    return list(dict.fromkeys(_cut(part[:_QUOTE_CHARS], _QUOTE_WORDS) for part in parts if part))


def _is_question(sentence: str) -> bool:
    return sentence.endswith(("?", "？"))


def _telling(sentence: str) -> set[str]:
    return {word for word in _WORD.findall(sentence.casefold()) if len(word) > 3} - _COMMON


def _cut(text: str, words: int) -> str:
    return " ".join(text.split()[:words])
