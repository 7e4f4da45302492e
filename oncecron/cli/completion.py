"""`oncecron completion`: click's script for a shell, and the names from the store at a TAB.

The script calls oncecron without arguments, with the shell in $_ONCECRON_COMPLETE and the line in $COMP_WORDS.
"""

from __future__ import annotations

import faulthandler
import os
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from oncecron.cli import output
from oncecron.cli.command import (
    COMPLETION_VARIABLE,
    STORE_OPTIONS,
    TableCommand,
    completer,
    store_reader,
)
from oncecron.cli.sentences import known_hosts, known_keys
from oncecron.config.options import is_key
from oncecron.config.settings import Settings
from oncecron.core.errors import OncecronError, UsageError
from oncecron.core.suggestion import not_one_of
from oncecron.core.timing import COMPLETION_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncecron.config.options import Completion
    from oncecron.stores.reader import Reader

SHELLS = ("bash", "zsh", "fish")


def complete(root: click.Command) -> int:
    """Answer a script; return the exit status. A slow store ends the process."""
    with open(os.devnull, "w", encoding="ascii") as nowhere:
        # It works outside Python, so it ends the process also while libpq looks up a name.
        faulthandler.dump_traceback_later(COMPLETION_TIMEOUT, exit=True, file=nowhere)
        try:
            return shell_complete(
                root, {}, "oncecron", COMPLETION_VARIABLE, os.environ[COMPLETION_VARIABLE]
            )
        except (click.UsageError, OncecronError):  # no such command, or one that cannot be loaded
            return 1
        finally:
            faulthandler.cancel_dump_traceback_later()


def candidates(
    what: Completion, context: click.Context, incomplete: str
) -> list[CompletionItem[Any]]:
    """Return what completes a value of a command; see `options.Completion`."""
    if what == "file":
        return [CompletionItem(incomplete, type="file")]
    values = what if isinstance(what, tuple) else _stored_names(what, context)
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]


def _stored_names(
    what: str | Callable[[Reader], Iterable[str]], context: click.Context
) -> list[str]:
    """Return names from the store that the line means; none if it is unreachable.

    Only names without special characters for a shell: a host may be called `$(reboot)`.
    """
    command = context.command
    assert isinstance(command, TableCommand)  # noqa: S101 - for the type checker
    try:
        with store_reader(Settings(STORE_OPTIONS, command.typed_values(context))) as store:
            names = {*(_NAMES[what] if isinstance(what, str) else what)(store)}
    except OncecronError:
        return []
    return sorted(name for name in names if is_key(name) and not name.startswith("-"))


_NAMES: dict[str, Callable[[Reader], Iterable[str]]] = {
    "key": known_keys,
    "host": known_hosts,
    "namespace": lambda store: store.namespaces(),
}


def _print(_given: dict[str, str], words: list[str]) -> int:
    found = get_completion_class(words[0]) if words[0] in SHELLS else None
    if found is None:
        raise UsageError(not_one_of(words[0], SHELLS))
    script = found(COMMAND, {}, "oncecron", COMPLETION_VARIABLE).source()
    output.write_text(script, output.standard_output())
    return 0


COMMAND = TableCommand(
    "completion", (), _print,
    about="Print a completion script for bash, zsh or fish.",
    examples=(
        "oncecron completion bash > ~/.local/share/bash-completion/completions/oncecron",
        "oncecron completion fish > ~/.config/fish/completions/oncecron.fish",
    ),
    words=click.Argument(["words"], metavar="bash|zsh|fish", shell_complete=completer(SHELLS)),
)  # fmt: skip
