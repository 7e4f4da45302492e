"""What the documentation takes from the tables of the command line: synopses, options, the list of commands.

A block of a page stands between `<!-- options: history -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from oncecron.cli import main
from oncecron.cli.command import TableCommand
from oncecron.config.options import RUN_OPTIONS, Option
from oncecron_each.options import ITEM_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

DETAILS = Path(__file__).resolve().parents[1] / "docs" / "commands" / "details.toml"
_IN_THE_FILE = {
    "never": "",
    "job": "Also in `[job.KEY]` of the configuration file.",
    "anywhere": "Also in the configuration file.",
}
_WHERE = "Where"
_LARGEST = 10**9
"""A greatest value beyond this one limits nobody."""
_BLOCK = re.compile(
    r"<!-- (options|synopsis|commands)(?:: ([a-z-]+))? -->\n(.*?)<!-- end -->\n", re.DOTALL
)
_CODE = re.compile(
    r"(?<![\w`$-])(--?[a-z][a-z-]*|\$?ONCECRON_[A-Z_]+|\$SHELL(?: -c)?|\[job\.KEY\]|@[a-z]+"
    r"|[a-z]+://[\w@/]+|~?/[\w~/.-]*\w)(?![\w`])"
)


class Command(NamedTuple):
    """A command by its full name, such as `crontab wrap`."""

    name: str
    click: TableCommand

    @property
    def page(self) -> str:
        """Return the name of its page."""
        return self.name.replace(" ", "-")

    @property
    def summary(self) -> str:
        """Return what it is for, as a sentence."""
        return (self.click.short_help or "").rstrip(".") + "."


def commands(group: click.Group = main.ONCECRON, above: str = "") -> Iterator[Command]:
    """Yield every command that is not hidden, in the order of the help."""
    context = click.Context(group, info_name="oncecron")
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, f"{above}{name} ")
        elif isinstance(found, TableCommand) and not found.hidden:
            yield Command(above + name, found)


def filled(markdown: str) -> str:
    """Return a page with its blocks filled. Raises `ValueError` for a block of an unknown kind or command."""
    return _BLOCK.sub(lambda found: _block(found[1], found[2] or ""), markdown)


def _block(kind: str, name: str) -> str:
    title = f"{kind}: {name}" if name else kind
    return f"<!-- {title} -->\n\n{_content(kind, name)}\n<!-- end -->\n"


def _content(kind: str, name: str) -> str:
    if kind == "commands":
        return _list_of_commands()
    if (kind, name) == ("options", "configuration"):
        return _configuration()
    known = {command.page: command for command in commands()}
    if kind not in ("options", "synopsis") or name not in known:
        raise ValueError(f"<!-- {kind}: {name} -->: there is no such block")
    return (_synopsis if kind == "synopsis" else _options)(known[name])


def _synopsis(command: Command) -> str:
    pieces = command.click.collect_usage_pieces(click.Context(command.click))
    words = " ".join(pieces).replace("[OPTIONS]", "[OPTION...]").replace("]...", "...]")
    if command.name in ("run", "each"):
        words = words.replace("[OPTION...] ", "--key KEY [OPTION...] [--] ")
    return (
        f"{command.summary}\n\n```text\noncecron {command.name} {words}\n```\n{_package(command)}"
    )


def _package(command: Command) -> str:
    package = main.ONCECRON.names[command.name.partition(" ")[0]].distribution
    return "" if package == "oncecron" else f"\nIt is in the package [{package}](../install.md).\n"


def _list_of_commands() -> str:
    rows = [
        f"| [oncecron {command.name}]({command.page}.md) | {command.summary} |"
        for command in commands()
    ]
    return "\n".join(["| command | |", "|---|---|", *rows, ""])


def _configuration() -> str:
    head = "| option | name in the file | place in the file | environment | default |\n|---|---|---|---|---|\n"
    where = {"job": "in `[job.KEY]`", "anywhere": "at the top, or in `[job.KEY]`"}
    rows = [
        f"| `--{option.name}` | `{option.name.replace('-', '_')}` | {_in_table(option, where[option.config])} "
        f"| {_as_code(option.environment)} | {_as_code(option.default)} |\n"
        for option in (*RUN_OPTIONS, *ITEM_OPTIONS)
        if option.config != "never"
    ]
    return head + "".join(rows)


def _in_table(option: Option, words: str) -> str:
    return words.replace("[job.KEY]", f"[job.KEY.{option.table}]") if option.table else words


def _as_code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _options(command: Command) -> str:
    details = _details(command)
    if not command.click.table:
        return "None but `--help`.\n"
    groups: dict[str, list[Option]] = {}
    for option in command.click.table:
        groups.setdefault(option.group, []).append(option)
    parts = []
    for title in sorted(groups, key=lambda title: title != "Options"):  # those need no title
        options = groups[title]
        if title != "Options" and len(groups) > 1:
            parts.append(f"### {title}\n")
        parts += [
            _option(option, details.get(option.name, ""))
            for option in options
            if not _is_of_run(command, option)
        ]
        parts += _as_of_run([option for option in options if _is_of_run(command, option)])
    return "\n".join(parts)


def _is_of_run(command: Command, option: Option) -> bool:
    """Say whether the page of `run` describes it: most commands have these, and say it once."""
    return command.name != "run" and option.group == _WHERE and option in RUN_OPTIONS


def _as_of_run(options: list[Option]) -> list[str]:
    tags = ", ".join(_tag(option) for option in options)
    return [f"- {tags}\n\n    As for [oncecron run](run.md#where).\n"] if options else []


def _details(command: Command) -> dict[str, str]:
    """Return what is to be said of options beyond their help. Raises `ValueError` for an unknown one."""
    told: dict[str, str] = tomllib.loads(DETAILS.read_text(encoding="utf-8")).get(command.page, {})
    unknown = set(told) - {option.name for option in command.click.table}
    if unknown:
        raise ValueError(f"{DETAILS.name}: [{command.page}] has no option {', '.join(unknown)}")
    return told


def _tag(option: Option) -> str:
    names = ([f"`-{option.short}`"] if option.short else []) + [f"`--{option.name}"]
    return ", ".join(names) + (f" {option.metavar}`" if option.metavar else "`")


def _option(option: Option, details: str) -> str:
    told = "\n".join(filter(None, (prose(option.help), details.strip())))
    paragraphs = [f"- {_tag(option)}", *told.split("\n\n"), facts(option)]
    return "\n\n    ".join(text.replace("\n", "\n    ") for text in paragraphs if text) + "\n"


def prose(text: str) -> str:
    """Return a help text as Markdown: options, variables, addresses and paths are code."""
    parts = text.split("`")  # every other one stands in backquotes already
    parts[::2] = [_CODE.sub(r"`\1`", part) for part in parts[::2]]
    plain = [re.sub(r"([*_<\[])", r"\\\1", part) for part in "`".join(parts).split("`")[::2]]
    code = "`".join(parts).split("`")[1::2]
    return "".join(
        part + (f"`{code[at]}`" if at < len(code) else "") for at, part in enumerate(plain)
    )


def facts(option: Option) -> str:
    """Return default, bounds, environment variable and place in the configuration file."""
    found = [f"Default: `{option.default}`."] if option.default is not None else []
    found += [_bounds(option)]
    found += [f"Environment: `{option.environment}`."] if option.environment else []
    found += [_in_table(option, _IN_THE_FILE[option.config])]
    return " ".join(filter(None, found))


def _bounds(option: Option) -> str:
    least, most = option.minimum, option.maximum
    unit = "s" if option.kind == "duration" else ""
    if least is not None and most is not None and most < _LARGEST:
        return f"From {least:g}{unit} to {most:g}{unit}."
    return f"At least {least:g}{unit}." if least is not None and least >= 1 else ""
