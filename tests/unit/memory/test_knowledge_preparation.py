"""What becomes of a document's bytes: text, sections, passages."""

import io
import zipfile
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_memory.knowledge.domain.chunks import MAX_BYTES, chunks_of
from loom_memory.knowledge.domain.converters.converted import Bounds, Unconvertible
from loom_memory.knowledge.domain.converters.html import MAX_DEPTH
from loom_memory.knowledge.domain.documents import Kind
from loom_memory.knowledge.domain.noise import Noise, asked_for, noise_of
from loom_memory.knowledge.domain.preparation import Prepared, Source, prepare
from loom_memory.knowledge.domain.sections import MAX_SECTIONS, Heading, sections_of, slug

BOUNDS = Bounds(chars=200_000, pages=5, unpacked_bytes=1_000_000)


def prepared(name: str, content: str | bytes, **more: str) -> Prepared:
    source = Source(name, content if isinstance(content, bytes) else content.encode(), **more)  # type: ignore[arg-type]  # its fields
    return prepare(source, BOUNDS)


def anchors(document: Prepared) -> list[str]:
    return [section.anchor for section in document.sections]


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["# A", "## A", "## B", "### A", "Title\n===", "```", "- [x](y)", "", "    code", "<h1>x</h1>"]
        ),
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=120),
        st.text("漢字かなテスト。", min_size=1, max_size=600),
        st.text("word and ", min_size=200, max_size=900),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(LINES, st.sampled_from(["a.md", "a.txt", "a.py", "a.html"]))
def test_sections_tile_the_text_and_passages_cover_it(lines: list[str], name: str) -> None:
    try:
        document = prepared(name, "\n".join(lines))
    except Unconvertible:
        return
    assert "".join(document.text[section.start : section.end] for section in document.sections) == document.text
    assert len(set(anchors(document))) == len(document.sections)
    covered = [False] * len(document.text)
    for each in document.chunks:
        chunk, section = each.chunk, document.sections[each.chunk.section]
        assert section.start <= chunk.start < chunk.end <= section.end
        assert len(document.text[chunk.start : chunk.end].encode()) <= MAX_BYTES
        covered[chunk.start : chunk.end] = [True] * (chunk.end - chunk.start)
    for section in document.sections:
        if document.text[section.body : section.end].strip():
            missed = [place for place in range(section.start, section.end) if not covered[place]]
            assert not "".join(document.text[place] for place in missed).strip()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.text(max_size=12)), max_size=30))
def test_anchors_are_unique_and_the_same_each_time(titles: list[tuple[int, str]]) -> None:
    text = "\n".join(f"line {number}" for number in range(len(titles) + 1))
    starts = [text.index(f"line {number}") for number in range(len(titles))]
    headings = [Heading(level, title, start, start + 6) for (level, title), start in zip(titles, starts, strict=True)]
    first, second = (sections_of(text, headings, "T") for _ in range(2))
    assert [section.anchor for section in first] == [section.anchor for section in second]
    assert len({section.anchor for section in first}) == len(first)


def test_headings_are_those_of_the_format_and_keep_letters_of_every_script() -> None:
    document = prepared(
        "a.md",
        "---\ntitle: Kept\n---\n# Über `uns`\n\n```\n# no\n```\n\n## 配置 GOALS.md\nx\n\n"
        "Two\n---\ny\n\n## 配置 GOALS.md\nz",
    )
    assert document.title == "Kept"
    assert anchors(document) == ["top", "über-uns", "配置-goalsmd", "two", "配置-goalsmd-1"]
    assert document.sections[2].breadcrumb == "Kept > Über uns > 配置 GOALS.md"
    assert slug("🙂") == "section"
    code = prepared(
        "a.py",
        "import os\n\n\n@cached\ndef one():\n    '''\ndef not_this():\n    '''\n\n\n"
        "class Two:\n    def three(self):\n        pass\n",
    )
    assert anchors(code) == ["top", "def-one", "class-two", "def-three"]
    assert (code.kind, code.language) == (Kind.CODE, "python")
    assert code.text[code.sections[1].start :].startswith("@cached")
    assert anchors(prepared("a.go", "package a\n\n// Says.\nfunc (s *S) Foo() {\n}\n\ntype T struct {\n}\n")) == [
        "top",
        "func-foo",
        "type-t",
    ]
    assert anchors(prepared("A.java", "public class A {\n  int b(int c) {\n    return d(c);\n  }\n}\n")) == [
        "class-a",
        "b",
    ]


def test_a_page_is_read_as_a_reader_sees_it_with_its_navigation_behind() -> None:
    page = (
        "<html><head><title>T</title><script>no</script></head><body><nav><a href=/>Home</a></nav>"
        "<h1>Main <b>x</b></h1><p>one  two<br>three</p><ul><li>a</li><li>b</li></ul><pre>k\n  l</pre>"
        "<table><tr><td>1</td><td>2</td></tr></table><footer>ends</footer></body></html>"
    )
    document = prepared("a.html", page)
    assert document.text.startswith("# Main x\n\none two\nthree\n\n- a\n- b\n\n```\nk\n  l\n```\n\n1 | 2")
    assert "no" not in document.text.split()
    assert [(section.heading, section.noise) for section in document.sections] == [
        ("Main x", Noise.NONE),
        ("Navigation", Noise.NAVIGATION),
    ]
    assert prepared("a.html", "<p>caf\xe9".encode("latin-1")).text == "café"
    assert prepared("a.html", '<meta charset="shift_jis"><p>漢字'.encode("shift_jis")).text == "漢字"


@pytest.mark.parametrize(
    ("name", "content", "told", "too_large"),
    [
        ("a.txt", b"caf\xe9", "byte 3", False),
        ("a.md", b"a\x00b", "NUL", False),
        ("a.md", b"  \n ", "no text", False),
        ("a.pdf", b"%PDF-1.7\nbroken", "broken", False),
        ("a.pdf", b"<html>", "no PDF", False),
        ("a.docx", b"PK\x03\x04broken", "broken", False),
        ("a.bin", b"\x89PNG\r\n", "picture", False),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "DOCX", False),
        ("a.md", b"x" * 200_001, "200,000 characters", True),
        ("a.html", b"<div>" * (MAX_DEPTH + 1), "inside each other", True),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(name: str, content: bytes, told: str, too_large: bool) -> None:
    with pytest.raises(Unconvertible) as caught:
        prepared(name, content)
    assert told in str(caught.value)
    assert caught.value.too_large is too_large


def test_what_is_declared_must_be_what_it_is() -> None:
    with pytest.raises(Unconvertible, match="PDF"):
        prepared("a", b"%PDF-1.7", media_type="text/markdown")
    with pytest.raises(Unconvertible, match="image/gif"):
        prepared("a", b"x", media_type="image/gif")
    assert prepared("a", "# x", media_type="application/octet-stream").kind is Kind.MARKDOWN
    assert prepared("a", "<!doctype html><p>x").kind is Kind.HTML
    assert prepared("a.md", "# x", media_type="text/plain; charset=utf-8").kind is Kind.MARKDOWN
    assert prepared("a", "é".encode("latin-1"), media_type="text/plain; charset=iso-8859-1").text == "é"
    with pytest.raises(Unconvertible, match="charset"):
        prepared("a", b"x", media_type="text/plain; charset=zlib")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_says_the_encoding_and_is_no_text(encoding: str) -> None:
    assert prepared("a.txt", "漢字\r\nx".encode(encoding)).text == "漢字\nx"


def docx(body: str, size: int = 0) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as packed:
        space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
        packed.writestr("word/document.xml", f"<w:document {space}><w:body>{body}</w:body></w:document>")
        packed.writestr(
            "_rels/.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r" '
            'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
            'Target="word/document.xml"/></Relationships>',
        )
        packed.writestr(
            "[Content_Types].xml", '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
        )
        packed.writestr(
            "word/styles.xml",
            f'<w:styles {space}><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="Heading 1"/></w:style>'
            "</w:styles>",
        )
        packed.writestr("word/media/x.bin", b"\x00" * size)
    return held.getvalue()


def test_a_docx_keeps_its_headings_and_a_bomb_is_refused() -> None:
    paragraph = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    heading = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Head</w:t></w:r></w:p>'
    document = prepared("a.docx", docx(heading + paragraph.format("Text here.")))
    assert (document.kind, document.title, document.text) == (Kind.DOCX, "Head", "# Head\n\nText here.")
    with pytest.raises(Unconvertible, match="unpacks"):
        prepared("a.docx", docx(paragraph.format("x"), size=1_000_001))
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as packed:
        packed.writestr("a.txt", "x")
    with pytest.raises(Unconvertible, match="no DOCX"):
        prepared("a.zip", held.getvalue())


def pdf(*pages: str) -> bytes:
    """A small PDF, written by hand: its objects, and their places."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    held = bytearray(b"%PDF-1.4\n")
    places = []
    for number, text in enumerate(objects, 1):
        places.append(len(held))
        held += f"{number} 0 obj\n{text}\nendobj\n".encode()
    start = len(held)
    rows = "".join(f"{place:010d} 00000 n \n" for place in places)
    held += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{rows}".encode()
    held += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF".encode()
    return bytes(held)


def test_a_pdf_is_read_by_page_and_refused_where_it_is_too_long_empty_or_without_end() -> None:
    document = prepared("a.pdf", pdf("Hello world", "Second page"))
    assert (document.kind, document.pages, anchors(document)) == (Kind.PDF, 2, ["page-1", "page-2"])
    assert "Second page" in document.text
    with pytest.raises(Unconvertible, match="6 pages"):
        prepared("a.pdf", pdf(*["x"] * 6))
    with pytest.raises(Unconvertible, match="no text"):
        prepared("a.pdf", pdf(""))
    looping = pdf("x").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]")
    with pytest.raises(Unconvertible):
        prepared("a.pdf", looping)


def test_a_pdf_that_passes_a_bound_of_its_reader_is_too_large_and_not_broken() -> None:
    packed_often = b"<< /Filter [" + b" /ASCIIHexDecode" * 40 + b" ] /Length"
    with pytest.raises(Unconvertible) as caught:
        prepared("a.pdf", pdf("x").replace(b"<< /Length", packed_often))
    assert caught.value.too_large


def test_noise_is_known_by_heading_name_and_form() -> None:
    assert noise_of(("T", "Table of Contents"), "x") is Noise.CONTENTS
    assert noise_of(("T", "License", "Grant"), "x") is Noise.LICENCE
    assert noise_of(("T", "Usage"), "How to use it.") is Noise.NONE
    assert noise_of(("Changelog", "v1.2.3 (2024-01-01)"), "- fixed", "x.md") is Noise.CHANGELOG
    assert noise_of(("T", "1.2.3"), "about this version") is Noise.NONE
    assert noise_of(("T",), "Permission is hereby granted ... WITHOUT WARRANTY OF ANY KIND") is Noise.LICENCE
    assert noise_of(("T", "Pages"), "\n".join(f"- [Page {n}](p{n}.md)" for n in range(5))) is Noise.CONTENTS
    assert noise_of(("T", "Intro"), "\n".join(f"Chapter {n} ........ {n}" for n in range(5))) is Noise.CONTENTS
    assert asked_for("under which LICENSE is it?") == {Noise.LICENCE}
    assert asked_for("how do I install it") == frozenset()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a", "<!---->" * 140 + "x"),
        ("changelog.md", f"# T\n## 1.0{'a' * 200}!\ntext"),
        ("a.txt", "." * 30_000),
    ],
)
def test_a_short_text_that_nearly_matches_is_read_as_fast_as_any(name: str, text: str) -> None:
    # Rules that tried every way to read these would not end, and hold up whatever else the process does.
    assert prepared(name, text).text == text


def test_a_document_of_very_many_headings_keeps_the_highest() -> None:
    text = "# T\n" + "".join(f"## A{n}\n### b\n" for n in range(MAX_SECTIONS // 2))
    document = prepared("a.md", text)
    assert len(document.sections) <= MAX_SECTIONS
    assert all(section.level <= 2 for section in document.sections)


def test_neighbouring_passages_overlap_by_about_a_sentence() -> None:
    text = " ".join(f"Sentence number {n} says a little something." for n in range(60))
    found = chunks_of(text, sections_of(text, [], "T"))
    assert len(found) > 2
    for one, other in pairwise(found):
        assert 0 < one.end - other.start <= 120
        assert text[other.start :].startswith("Sentence")
