"""What the documents say exists: links, settings, operations, commands, examples, generated pages."""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from loom_cli.__main__ import app
from loom_protos import registry

ROOT = Path(__file__).resolve().parents[3]
SKIPPED = {".venv", ".git", "node_modules", "build", "dist", "gen", "work"}

LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
SETTING = re.compile(r"\b(?:LOOM_[A-Z0-9_]*[A-Z0-9]|[A-Z]+_API_KEY)\b")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
OPERATION = re.compile(r"^[a-z]+\.[a-z]+(?:_[a-z]+)*$")
ROUTE = re.compile(r"/v1/([a-z_]+\.[a-z_]+)\b")
COMMAND = re.compile(r"(?:^|[;|(]|\$\()\s*(?:[A-Z_]+=\S+ )*loom ([^\n|;)#]+)", re.MULTILINE)
COMMAND_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
# A module or a file that happens to be written as an operation would be.
FILE_ENDINGS = {"py", "md", "sql", "proto", "json", "txt", "jwk", "jwks", "html", "yaml", "toml", "js", "css"}


def documents() -> list[Path]:
    """Every Markdown file of the repository that people wrote or read."""
    found = (path for path in ROOT.rglob("*.md") if not SKIPPED & set(path.relative_to(ROOT).parts))
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(ROOT).parts))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    without_code = FENCE.sub("", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(without_code)}


def broken_links(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    broken = []
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        goal = (page.parent / file).resolve() if file else page
        if not goal.exists() or (anchor and goal.suffix == ".md" and anchor not in anchors(goal.read_text("utf-8"))):
            broken.append(target)
    return broken


def unknown_settings(text: str) -> set[str]:
    known = set(registry()["settings"])
    return {name for name in SETTING.findall(text) if name not in known}


def operations_in(text: str) -> set[str]:
    """Names of operations: inline code of their form whose first part is a noun of the contract, and routes."""
    nouns = {name.partition(".")[0] for name in registry()["ops"]}
    inline = {word for word in INLINE.findall(FENCE.sub("", text)) if OPERATION.match(word)}
    candidates = {word for word in inline if word.partition(".")[0] in nouns} | set(ROUTE.findall(text))
    return {word for word in candidates if word.rpartition(".")[2] not in FILE_ENDINGS}


@cache
def command_tree() -> TyperGroup:
    tree = typer.main.get_command(app)
    assert isinstance(tree, TyperGroup)
    return tree


def commands_in(text: str) -> Iterator[list[str]]:
    """Each `loom ...` of the shell blocks and of inline code, as words."""
    for language, block in FENCE.findall(text):
        if language in ("sh", "bash"):
            joined = block.replace("\\\n", " ")
            for line in COMMAND.findall(joined):
                yield shlex.split(line, comments=True)
    for code in INLINE.findall(FENCE.sub("", text)):
        if code.startswith("loom ") and not code.endswith("..."):
            yield [word for word in re.sub(r"<[^>]*>", "x", code).split()[1:] if word != "..."]


def fault_of(words: list[str]) -> str:
    """What the command line does not have of a command; empty where it has all of it."""
    group, rest = command_tree(), list(words)
    parameters = group.params
    while rest and COMMAND_WORD.fullmatch(rest[0]):
        found = group.commands.get(rest[0])
        if found is None:
            return f"no command {rest[0]!r}"
        rest, parameters = rest[1:], found.params
        if not isinstance(found, TyperGroup):
            break
        group = found
    options = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in options | {"--help"}:
            return f"no option {option!r}"
    return ""


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", [*documents(), ROOT / ".env.example"], ids=relative)
def test_settings_that_are_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    # Examples of what is refused, and of a family's names.
    for example in ("LOOM_LLM_MODLE", "LOOM_<SERVICE>_ADDR", "LOOM_<SERVICE>_LISTEN", "LOOM_ARGS"):
        text = text.replace(example, "")
    assert unknown_settings(text) == set()


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_operations_that_are_named_exist(page: Path) -> None:
    assert operations_in(page.read_text("utf-8")) - set(registry()["ops"]) == set()


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_commands_that_are_shown_exist(page: Path) -> None:
    faults = {" ".join(words): fault_of(words) for words in commands_in(page.read_text("utf-8"))}
    assert {command: fault for command, fault in faults.items() if fault} == {}


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_examples_in_python_and_json_parse(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text("utf-8")):
        if language == "python":
            ast.parse(block)
        elif language == "json":
            json.loads(block)


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_pages_say_nothing_of_the_machine_that_they_were_written_on(page: Path) -> None:
    assert re.findall(r"/(?:work|root|tmp)/|\bshared/(?:design|spec|facts|data)", page.read_text("utf-8")) == []


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    reached, waiting = set[Path](), [index]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        targets = (target.partition("#")[0] for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))))
        waiting += [(page.parent / target).resolve() for target in targets if target and ":" not in target]
    assert {page for page in documents() if page.is_relative_to(ROOT / "docs")} - reached == set()


def test_generated_pages_are_what_the_code_says() -> None:
    script = ROOT / "scripts" / "generate_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


class TestTheChecksThemselves:
    """Each of them fails on a page that is wrong."""

    def test_a_link_to_nothing_is_found(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("# Here\n[a](gone.md) [b](#there) [c](#here) [d](https://example.org)", "utf-8")
        assert broken_links(page) == ["gone.md", "#there"]

    def test_a_setting_that_does_not_exist_is_found(self) -> None:
        assert unknown_settings("`LOOM_DATA_DIR` and `LOOM_DATA_DIRECTORY`") == {"LOOM_DATA_DIRECTORY"}

    def test_an_operation_that_does_not_exist_is_found(self) -> None:
        named = operations_in("`memory.set`, `memory.burn`, `memory.py`, curl $URL/v1/search.all")
        assert named - set(registry()["ops"]) == {"memory.burn", "search.all"}

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("```sh\nloom memory burn x\n```", "no command 'burn'"),
            ("```sh\nX=$(loom token create --rolle viewer)\n```", "no option '--rolle'"),
            ("`loom nurse`", "no command 'nurse'"),
            ("```sh\nLOOM_LOG_LEVEL=debug loom up --port 0\n```", ""),
            ('```sh\nloom memory search "what does Ana like?"\n```', ""),
        ],
    )
    def test_a_command_that_does_not_exist_is_found(self, text: str, fault: str) -> None:
        assert [fault_of(words) for words in commands_in(text)] == [fault]
