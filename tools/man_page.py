"""Markdown as a manual page: markdown-it's tree, written in man(7).

Titles become sections, code becomes bold. A list item whose first paragraph is code alone is a tagged paragraph. So is
a row of a table: its first cell is the tag, and with more than two columns each further cell has its title in front.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NAMED = {"\\": "\\e", "-": "\\-", "^": "\\(ha", "~": "\\(ti", "`": "\\(ga", "'": "\\(aq"}
_METAVARIABLE = re.compile(r"([A-Z][A-Z:=.|]*[A-Z]|[A-Z])(?![a-z_])")


class Page(NamedTuple):
    """A manual page and where it comes from."""

    source: str
    """The Markdown file, from the top of the repository."""
    name: str
    section: int
    summary: str = ""
    """What stands in NAME; else it is the first paragraph."""

    @property
    def path(self) -> str:
        """Return where the page is kept."""
        return f"man/{self.name}.{self.section}"


def man_page(page: Page, markdown: str, version: str, others: Mapping[str, Page]) -> str:
    """Return a page in man(7); `others`: which pages there are, by their sources, for links."""
    tree = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(markdown))
    writer = _Writer(page, others)
    head, rest = _head(tree.children)
    summary = page.summary or _summary(writer.plain(head.pop(0)))
    lines = [
        f'.\\" Made from {page.source} by tools/manual.py: change that file.',
        f'.TH {_code(page.name.upper())} {page.section} "" "oncecron {version}" "oncecron"',
        *(".nr HY 0", ".nh", ".ad l"),  # what is typed is neither hyphenated nor stretched
        *(".SH NAME", f"{_code(page.name)} \\- {_text(summary)}"),
    ]
    if head and head[0].type == "fence":
        lines += [".SH SYNOPSIS", ".nf", *map(_usage, head.pop(0).content.splitlines()), ".fi"]
    if head:
        lines += [".SH DESCRIPTION", *writer.blocks(head, "")]
    return "\n".join([*lines, *writer.blocks(rest, "")]) + "\n"


def _head(nodes: Sequence[SyntaxTreeNode]) -> tuple[list[SyntaxTreeNode], list[SyntaxTreeNode]]:
    """Return what stands between the title and the first section, and the rest; without comments."""
    shown = [node for node in nodes if node.type != "html_block"]
    assert shown[0].tag == "h1", "a page begins with its title"
    end = next((at for at, node in enumerate(shown) if node.tag == "h2"), len(shown))
    return shown[1:end], shown[end:]


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _summary(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


class _Writer:
    """Writes blocks of a page."""

    def __init__(self, page: Page, others: Mapping[str, Page]) -> None:
        self._page = page
        self._others = others

    def blocks(self, nodes: Iterable[SyntaxTreeNode], paragraph: str) -> list[str]:
        """Return lines; `paragraph`: what begins a paragraph here, but for the first."""
        lines: list[str] = []
        for node in nodes:
            first = not lines or lines[-1].startswith((".SH", ".SS"))
            begin = [] if first else [paragraph or ".PP"]
            if node.type == "heading":
                title = self.plain(node).upper() if node.tag == "h2" else self.plain(node)
                lines.append(f'.{"SH" if node.tag == "h2" else "SS"} "{_text(title)}"')
            elif node.type == "paragraph":
                lines += [*begin, *self._sentences(node)]
            elif node.type in ("fence", "code_block"):
                lines += [*begin, ".RS 4", ".EX", *_example(node.content), ".EE", ".RE"]
            elif node.type in ("bullet_list", "ordered_list"):
                lines += self._nested(self._list(node), inside=bool(paragraph))
            elif node.type == "blockquote":
                lines += [".RS", *self.blocks(node.children, paragraph), ".RE"]
            elif node.type == "table":
                lines += self._nested(self._table(node), inside=bool(paragraph))
        return lines

    @staticmethod
    def _nested(lines: list[str], *, inside: bool) -> list[str]:
        return [".RS", *lines, ".RE"] if inside else lines

    def _list(self, node: SyntaxTreeNode) -> list[str]:
        lines: list[str] = []
        for number, item in enumerate(node.children, 1):
            first, *rest = item.children
            if rest and _is_tag(first):
                lines += [".TP", self._tag(first), *self.blocks(rest, ".IP")]
                continue
            sign = "\\(bu 3" if node.type == "bullet_list" else f"{number}. 4"
            lines += [f".IP {sign}", *self.blocks(item.children, ".IP")]
        return lines

    def _table(self, node: SyntaxTreeNode) -> list[str]:
        head, body = node.children
        titles = [_upper(self.plain(cell)) for cell in head.children[0].children]
        lines: list[str] = []
        for row in body.children:
            tag, *cells = row.children
            lines += [".TP", self._tag(tag)]
            if len(cells) == 1:
                lines += self._sentences(cells[0])
                continue
            for at, cell in enumerate(cells):
                title = f"\\fI{_text(titles[at + 1])}\\fR: " if titles[at + 1] else ""
                begin, *rest = self._sentences(cell) or [""]
                lines += [*([".br"] if at else []), title + begin, *rest]
        return lines

    def _tag(self, node: SyntaxTreeNode) -> str:
        return self._inline(node.children[0], tag=True) if node.children else "\\&"

    def _sentences(self, node: SyntaxTreeNode) -> list[str]:
        """Return the text of a block, a line a sentence."""
        text = self._inline(node.children[0]) if node.children else ""
        parts = re.split(r"(?<=[.?!]) (?=[A-Z\\])|\n", text)
        return [f"\\&{part}" if part.startswith((".", "'")) else part for part in parts if part]

    def _inline(self, inline: SyntaxTreeNode, *, tag: bool = False) -> str:
        return "".join(self._span(node, tag=tag) for node in inline.children)

    def _span(self, node: SyntaxTreeNode, *, tag: bool) -> str:
        if node.type == "text":
            return _text(node.content)
        if node.type == "code_inline":
            is_usage = tag and node.content.startswith(("-", "oncecron "))
            return _usage(node.content) if is_usage else f"\\fB{_code(node.content)}\\fR"
        if node.type == "softbreak":
            return " "
        if node.type == "hardbreak":
            return "\n.br\n"
        if node.type == "link":
            return self._link(node)
        inner = "".join(self._span(child, tag=tag) for child in node.children)
        font = {"strong": "B", "em": "I"}.get(node.type)
        return f"\\f{font}{inner}\\fR" if font and "\\f" not in inner else inner

    def _link(self, node: SyntaxTreeNode) -> str:
        shown = "".join(self._span(child, tag=False) for child in node.children)
        path = str(node.attrs["href"]).partition("#")[0]
        if re.match(r"[a-z]+:", path):
            return shown if path == self.plain(node) else f"{shown} ({_code(path)})"
        source = posixpath.normpath(posixpath.join(posixpath.dirname(self._page.source), path))
        other = self._others.get(source)
        if not path or other == self._page:
            return shown
        if other is None:
            return f"{shown} ({_code(source)})"
        reference = f"\\fB{_code(other.name)}\\fR({other.section})"
        names = (other.name, other.name.replace("-", " "), f"{other.name}({other.section})")
        return reference if self.plain(node) in names else f"{shown} ({reference})"

    def plain(self, node: SyntaxTreeNode) -> str:
        """Return the text of a block without fonts."""
        return "".join(
            " " if child.type == "softbreak" else child.content
            for child in node.walk()
            if child.type in ("text", "code_inline", "softbreak")
        )


def _is_tag(node: SyntaxTreeNode) -> bool:
    """Return whether a paragraph is code alone, such as `-c`, `--shell`."""
    spans = node.children[0].children if node.type == "paragraph" else []
    return any(span.type == "code_inline" for span in spans) and all(
        span.type == "code_inline" or (span.type == "text" and span.content.strip() in ("", ","))
        for span in spans
    )


def _example(text: str) -> list[str]:
    lines = [_code(line) for line in text.splitlines()]
    return [f"\\&{line}" if line.startswith((".", "\\(aq")) else line for line in lines]


def _usage(text: str) -> str:
    """Return a command line: what is typed in bold, what is filled in in italics."""
    parts = re.split(r"([\s\[\]|]+|\.\.\.)", text)
    return "".join(
        part and (_code(part) if at % 2 else _word(part)) for at, part in enumerate(parts)
    )


def _word(word: str) -> str:
    font = "I" if _METAVARIABLE.fullmatch(word.replace(",", "").replace("..", "")) else "B"
    return f"\\f{font}{_code(word)}\\fR"


def _code(text: str) -> str:
    """Return text as it is typed."""
    return "".join(_NAMED.get(sign, sign) if sign.isascii() else _sign(sign) for sign in text)


def _text(text: str) -> str:
    """Return prose: a hyphen may be one, what begins with two is an option."""
    text = text.replace("\\", "\\e").replace("--", "\\-\\-").replace("~", "\\(ti")
    text = text.replace("^", "\\(ha").replace('"', "\\(dq")
    return "".join(sign if sign.isascii() else _sign(sign) for sign in text)


def _sign(sign: str) -> str:
    return f"\\[u{ord(sign):04X}]"
