"""What the pages show in fenced blocks, and what the comments above them ask for.

A comment directly above a block says how it is tested; readers do not see it. tests/README.md has the convention.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELL = ("console", "sh")
PLACES = ("local", "postgres", "postgres-empty", "redis")
PROMPT = re.compile(r"(?P<host>[a-z][a-z0-9-]*)?\$ (?P<command>.*)")
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w-]*)")
_COMMENT = re.compile(
    r"<!--\s*(?P<kind>test|not run|not parsed|before):\s*(?P<text>.*?)\s*-->", re.DOTALL
)


class SourceError(Exception):
    """A block that does not follow the convention."""


@dataclass(frozen=True)
class Command:
    """One command of a block, and the output shown below it (None: none is shown, and it must succeed)."""

    host: str
    text: str
    shown: tuple[str, ...] | None


@dataclass(frozen=True)
class Block:
    """One fenced block and its comments."""

    page: Path
    line: int
    language: str
    text: str
    comments: dict[str, str]

    @property
    def name(self) -> str:
        """The page and the line, as an editor opens them."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[Command]:
        """Return what is run: the hidden preparation, then what is shown."""
        before = self.comments.get("before")
        hidden = [Command("web1", before, None)] if before else []
        if self.language == "sh":
            return [*hidden, Command("web1", self.text, None)]
        return [*hidden, *_typed(self)]


@dataclass
class Scenario:
    """Blocks of a page that share a shell, a home directory and a store."""

    place: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.blocks[0].name

    @property
    def waits_for_a_lease(self) -> bool:
        """Whether it is likely to wait until a lease ends, whose length it gives."""
        return any("--ttl" in block.text for block in self.blocks)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks() -> list[Block]:
    return [
        block for page in pages() for block in blocks_of(page, page.read_text(encoding="utf-8"))
    ]


def blocks_of(page: Path, text: str) -> Iterator[Block]:
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.fullmatch(lines[number])
        if opening is None:
            number += 1
            continue
        begin, indent = number, len(opening["indent"])
        number += 1
        while lines[number].strip() != opening["fence"]:
            number += 1
        inner = "".join(f"{line[indent:]}\n" for line in lines[begin + 1 : number])
        yield Block(page, begin + 1, opening["language"], inner, _comments(lines[:begin]))
        number += 1


def scenarios(found: list[Block]) -> list[Scenario]:
    """Return what runs together; a block without a comment is a scenario of its own on SQLite."""
    done: list[Scenario] = []
    for block in found:
        if block.language not in SHELL or "not run" in block.comments:
            continue
        place = block.comments.get("test", "local")
        if place == "continues":
            if not done or done[-1].blocks[-1].page != block.page:
                raise SourceError(f"{block.name}: nothing before it on this page is run")
            done[-1].blocks.append(block)
        elif place in PLACES:
            done.append(Scenario(place, [block]))
        else:
            raise SourceError(f"{block.name}: unknown place {place!r} (one of {PLACES})")
    return done


def _comments(above: list[str]) -> dict[str, str]:
    """Return the comments that end directly above, a blank line at most in between."""
    found: dict[str, str] = {}
    text = "\n".join(above).rstrip()
    while text.endswith("-->"):
        begin = text.rindex("<!--")
        comment = _COMMENT.fullmatch(text[begin:])
        if comment is None:
            break
        found[comment["kind"]] = comment["text"]
        text = text[:begin].rstrip()
    return found


def _typed(block: Block) -> Iterator[Command]:
    host, text, shown = "", "", None
    for line in block.text.splitlines():
        prompt = PROMPT.fullmatch(line)
        if prompt:
            if shown is not None:
                yield Command(host, text, tuple(shown))
            host, text, shown = prompt["host"] or "web1", prompt["command"], []
        elif shown is None:
            raise SourceError(f"{block.name}: begins without a prompt")
        elif line.startswith("> ") and not shown:
            text += "\n" + line[2:]
        else:
            shown.append(line)
    if shown is None:
        raise SourceError(f"{block.name}: is empty")
    yield Command(host, text, tuple(shown))
