"""Looks at the engine's own parse of a statement, before it runs.

Grants and row filters keep a statement inside its scope on every engine. The embedded engine has no grant for some
functions that read beyond tables, honours settings in a subquery, and runs several statements of one text, so there
nothing runs that is not made of parts on a list: kinds of nodes, functions, tables. What the engine parses and runs is
what it wrote out itself from the caller's text, so that no comment, quote or parenthesis means one thing here and
another there.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from loom_common.analysis import allowlist
from loom_common.errors import QueryLimit, QueryRejected
from loom_insights.domain.functions import is_allowed

_NODES: Final = frozenset(
    {
        "ArrayJoin",
        "Asterisk",
        "ColumnsExceptTransformer",
        "ColumnsListMatcher",
        "ColumnsRegexpMatcher",
        "ColumnsReplaceTransformer",
        "ColumnsTransformerList",
        "ExpressionList",
        "Function",
        "Identifier",
        "InterpolateElement",
        "Literal",
        "OrderByElement",
        "QualifiedAsterisk",
        "SampleRatio",
        "SelectIntersectExceptQuery",
        "SelectQuery",
        "SelectWithUnionQuery",
        "Subquery",
        "TableExpression",
        "TableIdentifier",
        "TableJoin",
        "TablesInSelectQuery",
        "TablesInSelectQueryElement",
        "WindowDefinition",
        "WindowListElement",
        "WithElement",
    }
)
# What a refused kind of node is to whoever wrote it.
_REFUSED_NODES: Final = {
    "Set": "SETTINGS are refused: the limits of a statement are those of `insights.catalog`",
    "QueryParameter": "Parameters are refused: write the value into the statement",
    "ColumnsApplyTransformer": "APPLY is refused: name the columns",
    "Explain": "EXPLAIN is refused",
}
_TABLE_FUNCTIONS: Final = frozenset({"numbers", "generateSeries", "generate_series"})
_SYSTEM_TABLES: Final = frozenset({"system.one", "system.numbers"})
_IN: Final = re.compile(r"(?:global)?(?:not)?(?:null)?in(?:ignoreset)?", re.IGNORECASE)

_LINE: Final = re.compile(r"( *)([A-Za-z]+)(?: |_|$)?(.*)")
_SUFFIX: Final = re.compile(r"(?: \(alias .*?\))?(?: \(children \d+\))?$")
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`\\]|\\.|``)*`|\"(?:[^\"\\]|\\.|\"\")*\"")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMON_TABLE: Final = re.compile(
    r"(?:\bWITH(?:\s+RECURSIVE)?|,)\s+([A-Za-z_][A-Za-z0-9_]*)(?:\s*\([^()]*\))?\s+AS\s*(?:MATERIALIZED\s*)?\("
)
# Source: chosen. A statement of a person has hundreds of nodes; the engine's own bound is 50,000.
_MAX_NODES: Final = 20_000
# The engine copies a common table wherever it is read, before any limit holds and deaf to a kill: 30 of them, each of
# which reads the one before twice, are a billion copies. Source: measured on the embedded engine 26.9; a copy costs
# a fifth of a millisecond.
_MAX_COPIES: Final = 1_000


@dataclass(slots=True)
class Node:
    """One node of a parse."""

    kind: str
    name: str
    children: "list[Node]" = field(default_factory=list)


def check_form(formatted: str) -> None:
    """Looks at a statement as the engine wrote it out.

    Raises:
        QueryRejected: It is no SELECT, or filters before deleted rows are left out.
    """
    bare = _TEXT.sub("''", formatted)
    words = [word.upper() for word in _WORD.findall(bare)]
    if not words or words[0] not in ("SELECT", "WITH"):
        raise QueryRejected("It is no SELECT; nothing else is run.")
    if "PREWHERE" in words:
        raise QueryRejected("PREWHERE is refused: it looks at rows before deleted ones are left out; use WHERE.")


def check_tree(tree: str, formatted: str, database: str) -> None:
    """Looks at the parse of a wrapped statement.

    Args:
        tree: The engine's `EXPLAIN AST`.
        formatted: The statement as the engine wrote it out.
        database: Database that holds the tables.

    Raises:
        QueryRejected: A part of it is on no list.
        QueryLimit: It has too many parts.
    """
    root = parse_tree(tree)
    if not _is_wrapper(root):
        raise QueryRejected("It is not one SELECT in ClickHouse's SQL.")
    common = Counter(_COMMON_TABLE.findall(_TEXT.sub("''", formatted)))
    tables = {*allowlist(), *(f"{database}.{name}" for name in allowlist()), *_SYSTEM_TABLES, *common}
    for node, parent in _walk(root):
        _check_node(node, parent, tables)
    _check_copies(root, common)


def parse_tree(tree: str) -> Node:
    """Returns the root of an `EXPLAIN AST`.

    Raises:
        QueryRejected: A line of it is none that the engine writes of a plain SELECT.
        QueryLimit: It has too many lines.
    """
    lines = tree.rstrip("\n").split("\n")
    if len(lines) > _MAX_NODES:
        raise QueryLimit(
            "The statement hit the limit statement size. Make the statement shorter.",
            detail={"limit": "statement size"},
        )
    stack: list[Node] = []
    for line in lines:
        found = _LINE.fullmatch(line)
        depth = len(found[1]) if found else -1
        if found is None or depth > len(stack) or (depth == 0) != (not stack):
            raise QueryRejected("It is written in a way that cannot be looked at; use plain names.")
        node = Node(found[2], _SUFFIX.sub("", found[3]))
        del stack[depth:]
        if stack:
            stack[-1].children.append(node)
        stack.append(node)
    return stack[0]


def _walk(root: Node) -> Iterator[tuple[Node, Node | None]]:
    waiting: list[tuple[Node, Node | None]] = [(root, None)]
    while waiting:
        node, parent = waiting.pop()
        yield node, parent
        waiting += [(child, node) for child in node.children]


def _check_node(node: Node, parent: Node | None, tables: set[str]) -> None:
    if node.kind not in _NODES:
        raise QueryRejected(
            _REFUSED_NODES.get(node.kind, "It uses a part of ClickHouse's SQL that is not open here") + ".",
            detail={"part": node.kind},
        )
    if node.kind == "Function" and parent is not None and parent.kind == "TableExpression":
        if node.name not in _TABLE_FUNCTIONS:
            raise _not_open("table function", node.name)
    elif node.kind == "Function":
        if not is_allowed(node.name):
            raise _not_open("function", node.name)
        if _IN.fullmatch(node.name):
            _check_in(node, tables)
    elif node.kind == "TableIdentifier" and node.name not in tables:
        raise QueryRejected(
            f"It reads `{node.name}`, which is not in `insights.catalog`.", detail={"name": node.name[:128]}
        )


def _check_in(node: Node, tables: set[str]) -> None:
    """Refuses the name of a table behind IN that no list has: there the engine takes a name for a table's."""
    for name in _named_behind_in(node, ("Identifier", "TableIdentifier")):
        if name not in tables:
            raise QueryRejected(
                f"IN reads `{name}`, which is no table of `insights.catalog`; put values or a SELECT there.",
                detail={"name": name[:128]},
            )


def _named_behind_in(node: Node, kinds: Sequence[str]) -> Iterator[str]:
    arguments: Sequence[Node] = node.children[0].children if node.children else ()
    if len(arguments) > 1 and arguments[1].kind in kinds:
        yield arguments[1].name


def _check_copies(root: Node, common: Counter[str]) -> None:
    """Refuses common tables that multiply: the bound is the product, over all, of how often each is read.

    One name that is given more than once counts as so many tables that share its reads evenly, which is the most that
    they can come to.
    """
    reads: Counter[str] = Counter()
    for node, _ in _walk(root):
        if node.kind == "TableIdentifier":
            reads[node.name] += 1
        elif node.kind == "Function" and _IN.fullmatch(node.name):
            reads.update(_named_behind_in(node, ("Identifier",)))
    copies = 1.0
    for name, given in common.items():
        copies *= max(1.0, reads[name] / given) ** min(given, 64)
        if copies > _MAX_COPIES:
            raise QueryLimit(
                "The statement hit the limit statement size. Read its common tables less often: each is computed anew "
                "wherever it is read.",
                detail={"limit": "statement size"},
            )


def _not_open(what: str, name: str) -> QueryRejected:
    return QueryRejected(
        f"The {what} `{name}` is not open to statements; `insights.catalog` lists those that are.",
        detail={"name": name[:128]},
    )


def _is_wrapper(root: Node) -> bool:
    """Returns whether a parse is the one SELECT around a subquery, which nothing has left."""
    expected = (
        ("SelectWithUnionQuery", 1),
        ("ExpressionList", 1),
        ("SelectQuery", 2),
    )
    node = root
    for kind, children in expected:
        if node.kind != kind or len(node.children) != children:
            return False
        if kind != "SelectQuery":
            node = node.children[0]
    columns, source = node.children
    stars = [child.kind for child in columns.children] == ["Asterisk"]
    one = source.kind == "TablesInSelectQuery" and len(source.children) == 1
    table = source.children[0].children if one else []
    inner = table[0].children if len(table) == 1 and table[0].kind == "TableExpression" else []
    return stars and [child.kind for child in inner] == ["Subquery"]
