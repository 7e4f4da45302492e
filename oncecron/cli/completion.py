"""`oncecron completion`: a script for each shell, and the answers to the scripts at a TAB.

A script calls oncecron without arguments, with $_ONCECRON_COMPLETE set and the line up to the cursor in $COMP_LINE.
The line does not go into arguments, which every user of the host can read: it may hold a password. Each line of
the answer is one candidate: its type, its value and its help, with tabs between them. The types:

plain   one value of the word
file    a file; the value is what stands before it in the word, such as `--config=`
command the job of `run` or `each`, which the shell completes; the value is the length of the text before it
"""

from __future__ import annotations

import faulthandler
import io
import os
import shlex
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from oncecron.cli import output
from oncecron.cli.command import STORE_OPTIONS, TableCommand, completer, store_reader
from oncecron.cli.sentences import known_keys, recent_hosts
from oncecron.config.options import JOB_COMMANDS, is_key
from oncecron.config.run_parser import parse_run
from oncecron.config.settings import Settings
from oncecron.core.errors import OncecronError, UsageError
from oncecron.core.suggestion import not_one_of
from oncecron.core.timing import COMPLETION_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oncecron.config.options import Completion, Option
    from oncecron.stores.reader import Reader

SCRIPTS = {"bash": "oncecron.bash", "zsh": "_oncecron", "fish": "oncecron.fish"}
"""The files below `completions` in the package."""
_CURSOR = "\0"  # no line holds it


def complete(root: click.Command) -> int:
    """Answer a script; return the exit status. A slow store ends the process."""
    with open(os.devnull, "w", encoding="ascii") as nowhere:
        # It works outside Python, so it ends the process also while libpq looks up a name.
        faulthandler.dump_traceback_later(COMPLETION_TIMEOUT, exit=True, file=nowhere)
        try:
            answer = Completer(root, {}, "oncecron", "").complete()
        except (click.UsageError, OncecronError):  # no such command, or one that cannot be loaded
            answer = ""
        finally:
            faulthandler.cancel_dump_traceback_later()  # half an answer would be a wrong one
    print(answer)  # noqa: T201 - for a script
    return 0


class Completer(ShellComplete):
    """Click's completion, plus the parts that click leaves to each shell."""

    name = "oncecron"

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words after the program, and the unfinished last word."""
        self._line = os.environ.get("COMP_LINE", "")
        *words, last = split_arg_string(self._line + _CURSOR)
        return [os.path.expanduser(word) for word in words[1:]], last.removesuffix(_CURSOR)

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        """Return whole words, also after `--option=`; a job's words are completed by the shell."""
        if args and args[0] in JOB_COMMANDS:
            parsed = parse_run([*args[1:], incomplete or "COMMAND"], self._options_of(args[0]))
            if parsed and parsed.command:
                length = _length(self._line, len(args) + 2 - len(parsed.command))
                return [CompletionItem(str(length), type="command")]
        name, equals, _ = incomplete.partition("=")
        before = name + equals if equals and name.startswith("--") and "--" not in args else ""
        items = super().get_completions(args, incomplete)
        return [CompletionItem(before + item.value, item.type, item.help) for item in items]

    def _options_of(self, name: str) -> dict[str, Option]:
        assert isinstance(self.cli, click.Group)  # noqa: S101 - for the type checker
        command = self.cli.get_command(click.Context(self.cli), name)
        assert isinstance(command, TableCommand)  # noqa: S101 - likewise
        return {option.name: option for option in command.table}

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return one line of the answer."""
        return f"{item.type}\t{item.value}\t{item.help or ''}"


def _length(line: str, count: int) -> int:
    rest = io.StringIO(line)
    words = shlex.shlex(rest, posix=True)
    words.whitespace_split, words.commenters = True, ""  # as click splits
    for _ in range(count):
        words.get_token()
    return rest.tell() - 1


def candidates(
    what: Completion, context: click.Context, incomplete: str
) -> list[CompletionItem[Any]]:
    """Return what completes a value of a command; see `options.Completion`."""
    if what == "file":
        return [CompletionItem("", type="file")]
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


def _hosts(store: Reader) -> Iterator[str]:
    yield from recent_hosts(store)
    yield from (pause.host for pause in store.pauses() if pause.host is not None)


_NAMES: dict[str, Callable[[Reader], Iterable[str]]] = {
    "key": known_keys,
    "host": _hosts,
    "namespace": lambda store: store.namespaces(),
}


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    here = os.path.dirname(os.path.dirname(__file__))
    with open(os.path.join(here, "completions", SCRIPTS[shell]), encoding="utf-8") as file:
        return file.read()


def _print(_given: dict[str, str], words: list[str]) -> int:
    if words[0] not in SCRIPTS:
        raise UsageError(not_one_of(words[0], SCRIPTS))
    output.write_text(script(words[0]), output.standard_output())
    return 0


COMMAND = TableCommand(
    "completion", (), _print,
    about="Print a completion script for bash, zsh or fish.",
    examples=(
        "oncecron completion bash > ~/.local/share/bash-completion/completions/oncecron",
        "oncecron completion fish > ~/.config/fish/completions/oncecron.fish",
    ),
    words=click.Argument(["words"], metavar="bash|zsh|fish", shell_complete=completer(tuple(SCRIPTS))),
)  # fmt: skip
