"""A hook of mkdocs that writes all pages as plain text beside the site, for machines.

`llms.txt` lists the pages as the navigation has them (https://llmstxt.org). `llms-full.txt` is their Markdown, one page
after the other, without the comments for the tests. Links lead from the top of docs/.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure import StructureItem
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

_navigation: list[StructureItem] = []
_texts: dict[str, str] = {}
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Keep the order of the pages."""
    del config, files
    _navigation[:] = nav.items


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Keep the text of a page."""
    del config, files
    name = page.file.src_uri
    folder = posixpath.dirname(name)

    def from_the_top(link: re.Match[str]) -> str:
        return f"]({posixpath.normpath(posixpath.join(folder, link[1]))})"

    text = _LINK.sub(from_the_top, _COMMENT.sub("", markdown))
    _texts[name] = f"<!-- {name} -->\n{text.strip()}\n"


def on_post_build(config: MkDocsConfig) -> None:
    """Write both files."""
    site, pages = Path(config.site_dir), list(_pages(_navigation))
    about = f"> {config.site_description}. All pages in one file: [llms-full.txt](llms-full.txt)\n"
    lines = [f"# {config.site_name}\n", about, *_listed(_navigation)]
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts = "\n".join(_texts[page.file.src_uri] for page in pages)
    (site / "llms-full.txt").write_text(texts, encoding="utf-8")


def _pages(items: list[StructureItem]) -> list[Page]:
    found = []
    for item in items:
        if isinstance(item, Page):
            found.append(item)
        elif isinstance(item, Section):
            found += _pages(item.children)
    return found


def _listed(items: list[StructureItem]) -> list[str]:
    lines = []
    for item in items:
        if isinstance(item, Page):
            lines.append(f"- [{item.title}]({item.url or './'}): {_first_sentence(item)}")
        elif isinstance(item, Section):
            lines += [f"\n## {item.title}\n", *_listed(item.children)]
    return lines


def _first_sentence(page: Page) -> str:
    """Return what the page says first below its heading, on one line."""
    text = re.sub(
        r"^(?:#.*|<!--.*-->|```(?s:.*?)^```)\n", "", _texts[page.file.src_uri], flags=re.MULTILINE
    )
    paragraph = " ".join(text.strip().split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.:])\s", re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", paragraph), maxsplit=1)[
        0
    ]
