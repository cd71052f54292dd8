from pathlib import Path

import pytest

from loom_common.migrations import MigrationInvalid, find_migrations, render, split_statements

SOURCE = "CREATE TABLE IF NOT EXISTS t {on_cluster} (k String) ENGINE = {replacing:version} ORDER BY k"


def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> str:
    name = f"unit_{abs(hash(tmp_path))}"
    folder = tmp_path / name / "migrations"
    folder.mkdir(parents=True)
    (tmp_path / name / "__init__.py").touch()
    for file, text in files.items():
        (folder / file).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_templates_render_for_one_engine_and_for_a_cluster() -> None:
    assert render(SOURCE, "").split() == (
        [
            "CREATE",
            "TABLE",
            "IF",
            "NOT",
            "EXISTS",
            "t",
            "(k",
            "String)",
            "ENGINE",
            "=",
            "ReplacingMergeTree(version)",
            "ORDER",
            "BY",
            "k",
        ]
    )
    assert render(SOURCE, "main") == (
        "CREATE TABLE IF NOT EXISTS t ON CLUSTER `main` (k String) "
        "ENGINE = ReplicatedReplacingMergeTree(version) ORDER BY k"
    )
    assert render("{mergetree}", "main") == "ReplicatedMergeTree"


def test_an_unknown_template_is_refused() -> None:
    for text in ("{replacing}", "{mergetree:x}", "{other}"):
        with pytest.raises(MigrationInvalid):
            render(text, "")


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("a; b;", ["a", "b"]),
        ("a", ["a"]),
        (" ; ;", []),
        ("SELECT ';', \"x;y\", `a;b`; c", ["SELECT ';', \"x;y\", `a;b`", "c"]),
        (r"SELECT 'it\'s; x', 'a''b;'; c", [r"SELECT 'it\'s; x', 'a''b;'", "c"]),
        ("-- a; comment\na; /* b; */ c", ["a", "c"]),
        ("a - b / c; d", ["a - b / c", "d"]),
        ("SELECT '-- no comment; at all'", ["SELECT '-- no comment; at all'"]),
    ],
)
def test_statements_end_at_semicolons_outside_quotes_and_comments(text: str, statements: list[str]) -> None:
    assert split_statements(text) == statements


def test_the_shared_tables_are_one_statement_each() -> None:
    (first, *_) = find_migrations("loom_common")
    tables = [statement.split()[5] for statement in first.statements("")]
    assert tables == ["schema_migrations", "claims", "leases", "idempotency_keys"]


def test_migrations_are_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _package(tmp_path, monkeypatch, {"0002_b.sql": "SELECT 2", "0001_a.sql": "SELECT 1", "notes.md": ""})
    found = find_migrations(package)
    assert [(migration.version, migration.name) for migration in found] == [(1, "a"), (2, "b")]
    assert found[0].checksum != found[1].checksum


@pytest.mark.parametrize(
    "files",
    [
        {"0001_a.sql": "", "0003_c.sql": ""},
        {"0001_a.sql": "", "0001_b.sql": ""},
        {"1_a.sql": ""},
        {"0001_a.sql": "CREATE TABLE t (k String)"},
        {"0001_a.sql": "ALTER TABLE t ADD COLUMN c String"},
        {"0001_a.sql": "DROP TABLE t"},
    ],
)
def test_files_that_break_a_rule_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    package = _package(tmp_path, monkeypatch, files)
    with pytest.raises(MigrationInvalid):
        find_migrations(package)
