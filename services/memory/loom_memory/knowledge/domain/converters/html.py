"""HTML: the text that a reader of the page sees, its headings, lists, tables and code marked as in Markdown.

Walks the tree without recursion: a page of 100,000 nested elements is as good as any.
"""

from typing import Final

import regex
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from loom_memory.knowledge.domain.converters.converted import Bounds, Converted, Unconvertible, too_long
from loom_memory.knowledge.domain.sections import Heading, one_line

MAX_NODES: Final = 2_000_000
"""Most elements and texts of a page. Source: chosen; far more than any page for people has."""

MAX_DEPTH: Final = 20_000
"""Most elements inside each other. Source: measured, 2026-11-30: the parser takes 0.6 s for so many and 15 s for five
times as many; no page for people has a hundred."""

_TAG: Final = regex.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*+)[^<>]*+(?<!/)>")
# Elements that have no end, or end by themselves.
_NOT_NESTED: Final = frozenset(
    {
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "p", "li",
        "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "option", "optgroup", "colgroup", "rp", "rt",
    }
)  # fmt: skip

_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_UNSEEN: Final = frozenset(
    {
        "head", "script", "style", "template", "noscript", "svg", "canvas", "iframe", "object", "embed", "audio",
        "video", "select", "option", "datalist", "button", "input", "textarea", "math", "map", "dialog",
    }
)  # fmt: skip
_ASIDE: Final = frozenset({"nav", "footer"})
_ASIDE_ROLES: Final = frozenset({"navigation", "contentinfo", "menu", "menubar", "search"})
_BLOCKS: Final = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset",
        "figcaption", "figure", "form", "header", "hr", "html", "legend", "main", "ol", "p", "section", "summary",
        "table", "tbody", "tfoot", "thead", "ul", "caption",
    }
)  # fmt: skip
_PARAGRAPHS: Final = frozenset({"p", "pre", "blockquote", "table", "ul", "ol", "dl", "figure", *_HEADINGS})
_BLANKS: Final = regex.compile(r"[ \t\n\r\f\u00a0]+")
_MANY_BREAKS: Final = regex.compile(r"\n{3,}")


class _Text:
    """Text that grows, with its headings."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._parts: list[str] = []
        self.length = 0
        self.headings: list[Heading] = []
        # Breaks that stand before the next text; those before the first are dropped.
        self._breaks = 0
        self._blank = False

    def add(self, text: str, *, exact: bool = False) -> None:
        """Adds words, runs of white space as one; `exact` keeps them."""
        if exact:
            self._flush()
            self._append(text)
            return
        words = _BLANKS.sub(" ", text)
        if words.startswith(" "):
            self._blank = True
            words = words[1:]
        if not words:
            return
        ends_blank = words.endswith(" ")
        self._flush()
        self._append(words.rstrip(" "))
        self._blank = ends_blank

    def break_lines(self, count: int) -> None:
        """Lets at least so many line ends stand before what follows."""
        self._blank = False
        if self.length:
            self._breaks = max(self._breaks, count)

    def heading(self, level: int, title: str) -> None:
        """Adds a heading as a paragraph of its own."""
        self.break_lines(2)
        self._flush()
        start = self.length
        self._append(f"{'#' * level} {title}")
        self.headings.append(Heading(level, title, start, self.length + 1))
        self._breaks = 2

    def text(self) -> str:
        """Returns all of it."""
        return "".join(self._parts)

    def _flush(self) -> None:
        if self._breaks:
            self._append("\n" * self._breaks)
        elif self._blank and self.length:
            self._append(" ")
        self._breaks, self._blank = 0, False

    def _append(self, text: str) -> None:
        self.length += len(text)
        if self.length > self._bounds.chars:
            raise too_long(self._bounds)
        self._parts.append(text)


def from_html(text: str, bounds: Bounds) -> Converted:
    """Returns what a page says. Navigation and footers stand at its end, under a heading that says so.

    Raises:
        Unconvertible: It is longer, or has more elements, than is read.
    """
    _check_depth(text)
    try:
        root = LexborHTMLParser(text).root
    except SelectolaxError:
        # Whatever a page is like it can be parsed, but for want of memory.
        raise Unconvertible("The page takes more memory to read than is allowed.", too_large=True) from None
    if root is None:
        return Converted("")
    title_node = next((node for node in root.css("head > title")), None)
    walk = _Walk(bounds)
    walk.run(root)
    main, aside = walk.main, walk.aside
    if aside.length:
        main.heading(2, "Navigation")
        main.add(aside.text(), exact=True)
    title = next((heading.title for heading in main.headings if heading.level == 1), "")
    if not title and title_node is not None:
        title = one_line(title_node.text())
    return Converted(main.text(), main.headings, title)


def _check_depth(text: str) -> None:
    """Refuses a page before it is parsed, which takes time by the square of the depth."""
    depth = 0
    for tag in _TAG.finditer(text):
        if tag[2].lower() in _NOT_NESTED:
            continue
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > MAX_DEPTH:
            raise Unconvertible(f"The page has more than {MAX_DEPTH:,} elements inside each other.", too_large=True)


class _Walk:
    """One pass over a tree."""

    def __init__(self, bounds: Bounds) -> None:
        self.main = _Text(bounds)
        self.aside = _Text(bounds)
        self._lists: list[int] = []
        self._asides = 0
        self._exact = 0
        self._cells = 0

    @property
    def _to(self) -> _Text:
        return self.aside if self._asides else self.main

    def run(self, root: LexborNode) -> None:
        """Reads every node in order."""
        node: LexborNode | None = root
        nodes = depth = 0
        while node is not None:
            nodes += 1
            if nodes > MAX_NODES:
                raise Unconvertible(f"The page has more than {MAX_NODES:,} elements.", too_large=True)
            is_open = self._enter(node)
            below = node.child if is_open else None
            if below is not None:
                node, depth = below, depth + 1
                continue
            if is_open:
                self._leave(node)
            # The depth says when the walk is back at its root, whose neighbours are not of the page.
            while depth and node is not None and node.next is None:
                node, depth = node.parent, depth - 1
                if node is not None:
                    self._leave(node)
            node = node.next if depth and node is not None else None

    def _enter(self, node: LexborNode) -> bool:
        """Opens a node; False where nothing below it is read."""
        tag = node.tag or ""
        if tag == "-text":
            self._to.add(node.text_content or "", exact=bool(self._exact))
            return False
        if tag in _UNSEEN or tag.startswith("-"):
            return False
        level = _HEADINGS.get(tag)
        if level is not None and not self._asides:
            title = one_line(node.text(separator=" "))
            if title:
                self._to.heading(level, title)
            return False
        if _is_aside(node, tag):
            self._asides += 1
        self._open(node, tag)
        return True

    def _open(self, node: LexborNode, tag: str) -> None:
        to = self._to
        if tag == "br":
            to.break_lines(1)
        elif tag == "pre":
            to.break_lines(2)
            to.add("```\n", exact=True)
            self._exact += 1
        elif tag in ("ul", "ol"):
            to.break_lines(1 if self._lists else 2)
            self._lists.append(0 if tag == "ul" else 1)
        elif tag == "li":
            to.break_lines(1)
            to.add(self._item_mark(), exact=True)
        elif tag == "tr":
            to.break_lines(1)
            self._cells = 0
        elif tag in ("td", "th"):
            if self._cells:
                to.add(" | ", exact=True)
            self._cells += 1
        elif tag == "img":
            to.add(str(node.attributes.get("alt") or ""))
        elif tag in _BLOCKS or tag in _HEADINGS:
            to.break_lines(2 if tag in _PARAGRAPHS else 1)

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        to = self._to
        if tag == "pre":
            self._exact -= 1
            to.add("\n```", exact=True)
            to.break_lines(2)
        elif tag in ("ul", "ol"):
            self._lists.pop()
            to.break_lines(1 if self._lists else 2)
        elif tag in _BLOCKS or tag in _HEADINGS or tag in ("li", "tr"):
            to.break_lines(2 if tag in _PARAGRAPHS else 1)
        if _is_aside(node, tag):
            self._asides -= 1

    def _item_mark(self) -> str:
        depth = max(len(self._lists) - 1, 0)
        lead = "  " * min(depth, 8)
        if self._lists and self._lists[-1]:
            self._lists[-1] += 1
            return f"{lead}{self._lists[-1] - 1}. "
        return f"{lead}- "


def _is_aside(node: LexborNode, tag: str) -> bool:
    return tag in _ASIDE or node.attributes.get("role") in _ASIDE_ROLES


def squeezed(text: str) -> str:
    """Returns a text without more than one blank line in a row, and without blanks at line ends."""
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return str(_MANY_BREAKS.sub("\n\n", lines)).strip("\n")
