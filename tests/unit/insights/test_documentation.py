"""How pages of the documentation are split, told apart and searched."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from loom_insights.app.help import MOST_CHARS, Help
from loom_insights.app.help_index import OPERATOR_WEIGHT, HelpIndex
from loom_insights.domain.documentation import Page, page_of
from loom_insights.domain.snippets import LONGEST, snippet
from loom_insights.domain.terms import Analyzer
from loom_insights.store.shipped_docs import docs_folder, shipped_pages

PAGE = """# Memories of `Loom`

Before any section.

## Keys

A key names a claim.

### Limits

| name | most |
| --- | --- |
| `LOOM_KEY_MAX` | 512 |

```sh
## not a heading
```

## Keys

Again, and `memory.set` once.
"""


def test_a_page_is_split_at_its_headings_and_not_inside_code() -> None:
    page = page_of("user/memories.md", PAGE)
    assert [(section.level, section.anchor, section.breadcrumb) for section in page.sections] == [
        (1, "memories-of-loom", ("Memories of Loom",)),
        (2, "keys", ("Memories of Loom", "Keys")),
        (3, "limits", ("Memories of Loom", "Keys", "Limits")),
        (2, "keys-1", ("Memories of Loom", "Keys")),
    ]
    assert page.sections[0].text == "Before any section."
    keys = page.section("keys")
    assert keys is not None
    assert PAGE[keys.start : keys.end].startswith("## Keys\n\nA key")
    assert "not a heading" in PAGE[keys.start : keys.end]
    assert "memory.set" not in PAGE[keys.start : keys.end]


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("", ["x.md"]),
        ("no heading at all", ["x.md"]),
        ("words first\n\n# Title", ["x.md", "Title"]),
        ("# \n\n## [Linked](y.md) `code`", ["x.md", "Linked code"]),
        ("> # quoted\n\n- # listed", ["x.md"]),
        ("Under\n=====\n\n#nospace", ["Under"]),
        ("\r\n# A\r\n\r\n## B\r\n", ["A", "B"]),
        ("# A\r\r## B\r", ["A", "B"]),
        ("# \0 \u202e\ud7ff", ["\ufffd \u202e\ud7ff"]),
    ],
)
def test_strange_pages_have_sections_too(text: str, titles: list[str]) -> None:
    assert [section.title for section in page_of("x.md", text).sections] == titles


@pytest.mark.parametrize(
    ("path", "audience"),
    [
        ("user/http.md", "user"),
        ("README.md", "user"),
        ("operations.md", "user"),
        ("errors.md", "user"),
        ("operations/running.md", "operator"),
        ("architecture.md", "operator"),
        ("decisions/0001-x.md", "operator"),
        ("benchmarks.md", "operator"),
    ],
)
def test_a_page_says_whom_it_is_for(path: str, audience: str) -> None:
    assert page_of(path, "# x").audience == audience


def test_identifiers_are_terms_as_a_whole_beside_their_parts_and_words_are_folded() -> None:
    terms = Analyzer().of_text("Writing memories with memory.set; see LOOM_DATA_DIR and RATE_LIMITED.")
    assert {"memory.set", "loom_data_dir", "rate_limited", "write", "memori", "set", "dir"} <= set(terms)
    assert Analyzer().of_query("the of") == ["the", "of"]
    assert Analyzer().of_query("what is memory.set")[-2:] == ["memory.set", "memory.set"]


def test_an_exact_name_finds_the_line_that_names_it() -> None:
    index = HelpIndex(
        [page_of("user/memories.md", PAGE), page_of("user/b.md", "# Keys\n\nkeys and key and set memory")]
    )
    (hit, *_) = index.search("LOOM_KEY_MAX", 5, None)
    assert (hit.section.anchor, hit.snippet.splitlines()[0]) == ("limits", "| `LOOM_KEY_MAX` | 512 |")
    assert index.search("memory.set", 1, None)[0].section.anchor == "keys-1"


def test_a_section_for_operators_counts_three_quarters_and_can_be_asked_for_alone() -> None:
    pages = [page_of("user/a.md", "# One\n\nbackups are kept"), page_of("operations/a.md", "# One\n\nbackups are kept")]
    user, operator = HelpIndex(pages).search("backup", 5, None)
    assert (user.page.path, operator.page.path) == ("user/a.md", "operations/a.md")
    assert operator.score == pytest.approx(OPERATOR_WEIGHT * user.score, abs=1e-4)
    assert [hit.page.path for hit in HelpIndex(pages).search("backup", 5, "operator")] == ["operations/a.md"]


@pytest.mark.parametrize("query", ["", "   ", "\0", "zzzqqq", "((((", "的", "a" * 1024, ". " * 500, "\u202e"])
def test_a_strange_question_finds_nothing_and_harms_nothing(query: str) -> None:
    assert HelpIndex([page_of("user/memories.md", PAGE)]).search(query, 20, None) == []


def test_an_index_of_nothing_answers_nothing() -> None:
    assert HelpIndex([]).search("x", 5, None) == []
    assert HelpIndex([page_of("x.md", "# \n")]).search("y", 5, None) == []


def test_a_snippet_is_bounded_and_begins_where_the_words_are() -> None:
    terms = Analyzer().of_text
    assert len(snippet("wanted " * 200, {"want"}, terms)) == LONGEST
    assert snippet("nothing\n\nwanted here\nand on", {"want"}, terms) == "wanted here\nand on"
    assert snippet("```\n| --- |\n", {"want"}, terms) == ""


def counted_pages(pages: Sequence[Page]) -> "tuple[Help, list[int]]":
    builds: list[int] = []

    def read() -> Sequence[Page]:
        builds.append(threading.get_ident())
        return pages

    return Help(read), builds


async def test_first_calls_at_once_share_one_build_off_the_event_loop() -> None:
    help_, builds = counted_pages([page_of("user/memories.md", PAGE)])
    answers = await asyncio.gather(*(help_.search("key", 3, None) for _ in range(8)))
    assert all(answer and answer[0].section.title == "Keys" for answer in answers)
    assert len(builds) == 1
    assert builds[0] != threading.get_ident()


async def test_a_caller_that_leaves_does_not_end_the_build() -> None:
    help_, builds = counted_pages([page_of("user/memories.md", PAGE)])
    leaving = asyncio.create_task(help_.search("key", 3, None))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await help_.search("key", 3, None)
    assert len(builds) == 1


async def test_a_build_without_documentation_answers_that_it_has_none_and_is_not_tried_again() -> None:
    help_, builds = counted_pages([])
    assert await help_.search("key", 3, None) is None
    assert await help_.read("README.md") is None
    assert not await help_.available()
    assert len(builds) == 1


async def test_a_long_page_is_read_in_parts_that_make_it_up_whole() -> None:
    text = "# Long\n\n" + "".join(f"## Part {n}\n\n{'words ' * 400}\n\n" for n in range(20))
    help_, _ = counted_pages([page_of("user/long.md", text)])
    parts, offset = [], 0
    while True:
        read = await help_.read("user/long.md", "", offset)
        assert read is not None
        assert len(read.text) <= MOST_CHARS
        assert len(read.outline) == 21
        parts.append(read.text)
        if read.next_offset is None:
            break
        offset = read.next_offset
    assert "".join(parts) == text
    assert len(parts) > 2
    one = await help_.read("user/long.md", "part-3")
    assert one is not None
    assert (one.outline, one.next_offset) == ((), None)
    assert one.text.startswith("## Part 3\n")


@pytest.mark.parametrize(
    ("page", "anchor"),
    [
        ("../README.md", ""),
        ("/etc/passwd", ""),
        ("user/memories.md/", ""),
        ("", ""),
        ("user/memories.md", "no"),
        ("\0", ""),
    ],
)
async def test_what_is_no_page_or_section_is_not_found(page: str, anchor: str) -> None:
    help_, _ = counted_pages([page_of("user/memories.md", PAGE)])
    assert await help_.read(page, anchor) is None


async def test_an_offset_past_the_end_reads_nothing() -> None:
    help_, _ = counted_pages([page_of("user/memories.md", PAGE)])
    read = await help_.read("user/memories.md", "", 2**31 - 1)
    assert read is not None
    assert (read.text, read.next_offset) == ("", None)


def test_a_page_that_cannot_be_read_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "good.md").write_text("# Good", "utf-8")
    (tmp_path / "bad.md").write_bytes(b"\xff\xfe")
    assert [page.path for page in shipped_pages(tmp_path)] == ["good.md"]
    assert "help_page_unread" in caplog.text


def test_an_installed_package_reads_its_own_pages_and_nothing_around_it(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "loom_insights"
    package.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    assert docs_folder(package) is None
    (package / "docs").mkdir()
    assert docs_folder(package) == package / "docs"
