"""`oncecron config check`: all problems of a configuration file at once, without a store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from oncecron.cli.command import FILES, JSON, TableCommand
from oncecron.core.errors import EX_CONFIG

if TYPE_CHECKING:
    from oncecron.config.file import FileProblem

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    JSON._replace(help="Print all fields as JSON (one array) instead of lines.", group="Options"),
)


def _check(given: dict[str, str], words: list[str]) -> int:
    from oncecron.alerts.settings import parse_notify
    from oncecron.cli import output
    from oncecron.config.check import check_file
    from oncecron.config.file import find_file
    from oncecron.core.errors import UsageError
    from oncecron.stores.address import home_directory

    if words == [""]:
        raise UsageError("FILE is empty (an unset variable?); leave it out to check the usual file")
    path = words[0] if words else find_file(os.environ, home_directory)
    found = check_file(path, lambda file: parse_notify(file)[1]) if path else []
    stream = output.standard_output()
    if "json" in given:
        output.write_text(output.json_text([_fields(problem) for problem in found], 1), stream)
    elif found:
        output.say("\n".join(map(str, found)), stream)
    else:
        output.say(f"{path}: no problems" if path else "no configuration file", stream)
    return EX_CONFIG if found else 0


def _fields(problem: FileProblem) -> dict[str, Any]:
    """Return the published fields; null for the whole file, for a whole section, and for no cure."""
    message, _, cure = problem.text.partition("; ")
    return {
        "file": problem.path,
        "section": problem.section or None,
        "name": problem.name or None,
        "message": message,
        "cure": cure or None,
    }


COMMAND = TableCommand(
    "check",
    OPTIONS,
    _check,
    short="Find every mistake in the configuration file.",
    about="Check a configuration file, by default the one that `oncecron run` would read. Print one line per problem: "
    "FILE [SECTION]: problem; cure. Exit with status 78 if there is any. No store is contacted.",
    examples=("oncecron config check", "oncecron config check web1/oncecron.toml"),
    words=click.Argument(
        ["words"], metavar="[FILE]", nargs=1, required=False, shell_complete=FILES
    ),
)
