"""Rules for every SQL text of the repository that a reviewer would miss."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
# These name it to callers, in order to refuse it.
_REFUSING = {"services/insights/loom_insights/app/catalog.py", "services/insights/loom_insights/domain/guard.py"}
_SOURCES = sorted(
    path
    for pattern in ("services/*/loom_*/**/*", "gateway/loom_*/**/*", "cli/loom_*/**/*")
    for path in _ROOT.glob(pattern)
    if path.suffix in (".py", ".sql")
)
_SQL = re.compile(
    r"^\s*(?:SELECT\b.*\bFROM\b|WITH\b.*\bSELECT\b|INSERT\s+INTO\b|ALTER\s+TABLE\b|CREATE\s+(?:TABLE|DATABASE|VIEW)\b"
    r"|DROP\s+\w+\b|DELETE\s+FROM\b|TRUNCATE\b|OPTIMIZE\s+TABLE\b|KILL\s+QUERY\b)",
    re.IGNORECASE | re.DOTALL,
)
# Names and setting values cannot be bound; these functions quote them, so that what they return is safe to put in.
_QUOTING = {"quote_identifier", "quoted"}
# These put statements together from constants and from what they are given by the names below.
_COMPOSING = {"live_versions", "_without_vectors"}
# Text put together from quoted names and keywords, or from conditions that bind every value (`store/filters.py`).
_QUOTED_NAMES = {"target", "names", "on_cluster", "where", "sessions"}


def _sql_texts(path: Path) -> Iterator[tuple[int, ast.expr, str]]:
    """Yields each string of a module that reads as SQL, with placeholders of an f-string left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if _SQL.match(text):
            yield node.lineno, node, text


def test_there_is_sql_to_look_at() -> None:
    assert any(path.suffix == ".sql" for path in _SOURCES)
    assert any(True for path in _SOURCES if path.suffix == ".py" for _ in _sql_texts(path))


@pytest.mark.parametrize("path", _SOURCES, ids=lambda path: str(path.relative_to(_ROOT)))
def test_no_statement_filters_before_the_merge(path: Path) -> None:
    """An explicit PREWHERE under FINAL returned superseded and deleted rows."""
    named = re.search(r"\bPREWHERE\b", path.read_text(), re.IGNORECASE)
    assert bool(named) == (path.relative_to(_ROOT).as_posix() in _REFUSING)


@pytest.mark.parametrize(
    "path", [path for path in _SOURCES if path.suffix == ".py"], ids=lambda path: str(path.relative_to(_ROOT))
)
def test_no_statement_has_a_value_formatted_into_it(path: Path) -> None:
    tree = ast.parse(path.read_text())
    offences = [
        f"{path.relative_to(_ROOT)}:{line}"
        for line, node, _ in _sql_texts(path)
        if isinstance(node, ast.JoinedStr) and not all(map(_is_quoted, node.values))
    ]
    offences += [
        f"{path.relative_to(_ROOT)}:{node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.left.value, str)
        and _SQL.match(node.left.value)
    ]
    offences += [
        f"{path.relative_to(_ROOT)}:{node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format"
        and isinstance(node.func.value, ast.Constant)
        and isinstance(node.func.value.value, str)
        and _SQL.match(node.func.value.value)
    ]
    assert not offences


def _is_quoted(part: ast.expr) -> bool:
    if not isinstance(part, ast.FormattedValue):
        return True
    value = part.value
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in _QUOTING | _COMPOSING
    # Constants of a module: a shared piece of SQL, such as the live predicate of a table, or a number and its sums.
    inside = list(ast.walk(value))
    return not any(isinstance(node, ast.Call) for node in inside) and all(
        node.id in _QUOTED_NAMES or node.id.lstrip("_").isupper() for node in inside if isinstance(node, ast.Name)
    )
