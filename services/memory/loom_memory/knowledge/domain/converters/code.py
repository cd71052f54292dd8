"""Code: as it is; its headings are the definitions of classes, functions and the like."""

from typing import Final

import regex
from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name
from pygments.token import Comment, Name, String
from pygments.util import ClassNotFound

from loom_memory.knowledge.domain.converters.converted import Converted
from loom_memory.knowledge.domain.sections import Heading, one_line

MAX_LEXED_CHARS: Final = 500_000
"""Code points up to which names are told from strings; a longer file, which nobody wrote, is cut by length alone."""

_MODIFIERS: Final = (
    r"(?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|async|override|open|sealed"
    r"|data|inline|virtual|partial|unsafe|extern|const|pub(?:\([^)\n]{1,40}\))?|suspend|readonly)\s+)*+"
)
_KEYWORDS: Final = (
    r"(?:def|class|function\*?|func|fun|fn|struct|enum|trait|impl|interface|type|module|namespace|object|record|protocol"
    r"|extension|union|macro_rules!|defmodule|defp?|sub|procedure|message|service)"
)
_DEFINED: Final = regex.compile(
    rf"^(?P<indent>[ \t]*+){_MODIFIERS}(?P<word>{_KEYWORDS})\b[ \t]*"
    r"(?:<[^>\n]{0,80}>[ \t]*)?(?:\([^)\n]{0,80}\)[ \t]*)?"
    r"(?P<name>[\p{L}_$][\p{L}\p{N}_$]*(?:(?:::|\.)[\p{L}\p{N}_$]+)*[?!]?)"
)
_CREATED: Final = regex.compile(
    r"^(?P<indent>[ \t]*+)(?P<word>create\s+(?:or\s+replace\s+)?(?:table|view|materialized\s+view|function|procedure"
    r"|trigger|type|dictionary))\s+(?:if\s+not\s+exists\s+)?(?P<name>[\w.\"`]+)",
    regex.IGNORECASE,
)
_DECORATOR: Final = regex.compile(r"^[ \t]*(?:@|#[\[ !]|//|\*|/\*|--)")
_TAB: Final = 4
# What a function's own functions say belongs to it.
_MOST_LEVELS: Final = 3


def from_code(text: str, file_name: str, language: str = "") -> Converted:
    """Returns a file of code.

    Args:
        text: Its text.
        file_name: By which its language is known, and which is its title.
        language: Its language, where its writer says so.
    """
    lexer = _lexer(file_name, language)
    title = file_name.rsplit("/", 1)[-1]
    if lexer is None or len(text) > MAX_LEXED_CHARS:
        return Converted(text, (), title, language or (lexer.name.casefold() if lexer else ""))
    return Converted(text, _definitions(text, lexer), title, lexer.name.casefold())


def is_code_name(file_name: str) -> bool:
    """Says whether a file's name is that of a program."""
    return _lexer(file_name, "") is not None


def _lexer(file_name: str, language: str) -> Lexer | None:
    try:
        if language:
            return get_lexer_by_name(language, stripnl=False, ensurenl=False)
        found = find_lexer_class_for_filename(file_name)
        return found(stripnl=False, ensurenl=False) if found is not None else None
    except ClassNotFound:
        return None


def _definitions(text: str, lexer: Lexer) -> list[Heading]:
    """Returns where definitions begin, each with the comments and decorators right above it."""
    is_code, functions = _places(text, lexer)
    found: list[Heading] = []
    open_indents: list[int] = []
    start = 0
    for line in text.splitlines(keepends=True):
        match = _DEFINED.match(line) or _CREATED.match(line)
        name = _title(match, line, functions.get(start, "")) if start in is_code else ""
        if name:
            indent = _width(line)
            while open_indents and open_indents[-1] >= indent:
                open_indents.pop()
            if len(open_indents) < _MOST_LEVELS:
                begin = _with_lead(text, start, found[-1].body if found else 0)
                found.append(Heading(2 + len(open_indents), one_line(name), begin, start + len(line)))
                open_indents.append(indent)
        start += len(line)
    return found


def _places(text: str, lexer: Lexer) -> tuple[set[int], dict[int, str]]:
    """Returns the lines, by their starts, that begin in code, and names of functions that lines begin to define.

    A language such as C or Java has no word for a function: its lexer knows the name.
    """
    quoted: list[tuple[int, int]] = []
    functions: dict[int, str] = {}
    for place, kind, value in lexer.get_tokens_unprocessed(text):
        if (kind in String or kind in Comment) and "\n" in value:
            quoted.append((place, place + len(value)))
        elif kind in Name.Function and lexer.name in _BY_LEXER:
            line = text.rfind("\n", 0, place) + 1
            if _declares(text, line, place, place + len(value)):
                functions.setdefault(line, value)
    lines = {0} | {found.end() for found in regex.finditer("\n", text)}
    for first, behind in quoted:
        line = text.find("\n", first, behind)
        while line >= 0:
            if line + 1 < behind:
                lines.discard(line + 1)
            line = text.find("\n", line + 1, behind)
    return lines, functions


_BY_LEXER: Final = frozenset({"C", "C++", "Java", "C#", "Objective-C", "Dart", "Bash", "D", "Groovy", "Arduino"})
_CONTROL: Final = frozenset({"if", "for", "while", "switch", "return", "else", "catch", "new", "throw", "do", "case"})


def _declares(text: str, line: int, place: int, behind: int) -> bool:
    """Says whether a function's name is defined there, and not called: words alone stand before it, a body follows."""
    lead = text[line:place]
    words = regex.findall(r"[\p{L}_]\w*", lead)
    if _CONTROL & set(words) or regex.search(r"[=.({;]", lead):
        return False
    end = text.find("\n", behind)
    rest = text[behind : behind + 1000]
    closing = regex.match(r"\s*\([^;{}]{0,800}\)[^;{}()]{0,200}\{", rest)
    return closing is not None or (end < 0 and "{" in rest)


def _title(match: "regex.Match[str] | None", line: str, function: str) -> str:
    if match is not None:
        word = " ".join(match["word"].casefold().split())
        return f"{word} {match['name']}".strip()
    return f"{function}()" if function and not line.lstrip().startswith(("//", "#", "*")) else ""


def _width(line: str) -> int:
    blank = line[: len(line) - len(line.lstrip(" \t"))]
    return len(blank.replace("\t", " " * _TAB))


def _with_lead(text: str, start: int, least: int) -> int:
    """Returns where the comments and decorators above a line begin."""
    while start > least:
        before = text.rfind("\n", least, start - 1) + 1 if start - 1 > least else least
        line = text[max(before, least) : start]
        if not line.strip() or not _DECORATOR.match(line):
            return start
        start = max(before, least)
    return start
