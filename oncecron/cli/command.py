"""What the commands share: click commands made from option tables, and the way to the store.

click only splits the command line; values stay text until `config.Settings` converts them, so that
every source is checked alike and an error names the option.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from oncecron.config.options import STORE_OPTIONS, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from click.shell_completion import CompletionItem

    from oncecron.config.options import Completion
    from oncecron.config.settings import Settings
    from oncecron.stores.api import Inspector


def completing(what: Completion) -> Callable[..., list[CompletionItem]]:
    """Return what click asks for the completion of a value."""

    def offered(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from oncecron.cli.completion import candidates  # noqa: PLC0415 - only at a TAB

        return candidates(what, context, incomplete)

    return offered


KEYS, HOSTS, FILES = completing("key"), completing("host"), completing("file")

UTC = Option("utc", "flag", "Show times in UTC, not in this host's zone.", "", "Output")
FORMAT = Option(
    "format",
    "choice",
    "How to print: a table, or every field as JSON (one array), one JSON object a line, or CSV.",
    "table|json|ndjson|csv",
    "Output",
    "table",
    choices=("table", "json", "ndjson", "csv"),
)
JSON = Option("json", "flag", "The same as --format json.", "", "Output")
OUTPUT_OPTIONS = (FORMAT, JSON, UTC)


def answer(context: click.Context, text: str) -> NoReturn:
    """Print what an option alone asks for, and end. Raises `OutputError`, or `BrokenPipeError`."""
    from oncecron.cli import output  # noqa: PLC0415 - a command that is carried out may not need it

    output.say(text, output.standard_output())
    context.exit()


class _Helpful(click.Command):
    """A command whose --help tells when it cannot be written, as every other answer does."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return click's option, which prints by our way."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _help
        return option


def _help(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        answer(context, context.get_help())


class LazyGroup(_Helpful, click.Group):
    """Commands by their names; each is the `COMMAND` of its module, imported when it is asked for."""

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        package: str,
        *,
        about: str,
        short: str = "",
        **more: Any,
    ) -> None:
        """`names`: in the order of the help; `package`: where the modules are."""
        super().__init__(name, help=about, short_help=short, no_args_is_help=False, **more)
        self.names = tuple(names)
        self._package = package
        self.otherwise = f"it has {', '.join(names)}"
        """What is said of a name that is not there and like none that is."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the help."""
        return list(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command."""
        if cmd_name not in self.names:
            return None
        command: click.Command = importlib.import_module(f"{self._package}.{cmd_name}").COMMAND
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one."""
        if args[0] not in self.names and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.names, 1)
            hint = f"did you mean {near[0]}?" if near else self.otherwise
            raise click.UsageError(f"{args[0]!r} is no command of {ctx.command_path}; {hint}", ctx)
        return super().resolve_command(ctx, args)


class TableCommand(_Helpful):
    """A command whose options come from a table."""

    def __init__(
        self,
        name: str,
        options: Sequence[Option],
        use: Callable[[dict[str, str], list[str]], int],
        *,
        about: str,
        short: str,
        words: click.Argument | None = None,
        epilog: str | None = None,
        greedy: bool = False,
    ) -> None:
        """`use` gets what was typed: values by option, and the words; `greedy`: no options after the first word."""
        super().__init__(
            name,
            params=[*map(_click_option, options), *([words] if words else [])],
            callback=self._called,
            help=about,
            short_help=short,
            epilog=epilog,
            context_settings={"allow_interspersed_args": not greedy},
        )
        self.table = tuple(options)
        self._use = use

    def _called(self, **values: Any) -> int:
        words = values.get("words")
        given = self.typed(click.get_current_context())
        return self._use(given, [words] if isinstance(words, str) else list(words or ()))

    def typed(self, context: click.Context) -> dict[str, str]:
        """Return the options that were typed, as text."""
        return {
            option.name: _as_text(option, context.params[name])
            for option in self.table
            for name in [_identifier(option)]
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        }

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in the groups of the table."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for option, parameter in zip(self.table, self.params, strict=False):
            record = parameter.get_help_record(ctx)
            if record:
                groups.setdefault(option.group, []).append(record)
        for parameter in self.get_params(ctx)[len(self.params) :]:  # --help
            record = parameter.get_help_record(ctx)
            if record:
                groups.setdefault("Options", []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _identifier(option: Option) -> str:
    return "option_" + option.name.replace("-", "_")


def _click_option(option: Option) -> click.Option:
    names = [_identifier(option), f"--{option.name}"]
    if option.short:
        names.insert(1, f"-{option.short}")
    notes = [f"default: {option.default}"] if option.default is not None else []
    notes += [f"environment: ${option.environment}"] if option.environment else []
    text = option.help + (f"  [{'; '.join(notes)}]" if notes else "")
    if option.kind == "flag":
        return click.Option(names, is_flag=True, help=text)
    if option.kind == "count":
        return click.Option(names, count=True, help=text)
    more: dict[str, Any] = {} if option.default is None else {"default": option.default}
    return click.Option(
        names,
        type=str,
        metavar=option.metavar,
        help=text,
        multiple=option.repeatable,
        shell_complete=completing(option.choices or option.completion),
        **more,
    )


def _as_text(option: Option, value: Any) -> str:
    if option.kind == "flag":
        return "true"
    if option.repeatable:
        return ",".join(value)
    return str(value)


@contextlib.contextmanager
def store_inspector(settings: Settings, *, log: bool = False) -> Iterator[Inspector]:
    """Open the store as people ask it; `log`: the one whose log they read. Raises `StoreError`."""
    from oncecron.stores import open_inspector  # noqa: PLC0415 - not for --help

    beside = settings.log()  # checked also where only the store is asked
    address = (beside if log else None) or settings.address()
    store = open_inspector(address, settings["namespace"])
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def all_inspectors(settings: Settings) -> Iterator[dict[str, Inspector]]:
    """Open the store and, where there is one, the log beside it, by what they are. Raises `StoreError`."""
    with contextlib.ExitStack() as opened:
        found = {"store": opened.enter_context(store_inspector(settings))}
        if settings.log():
            found["log"] = opened.enter_context(store_inspector(settings, log=True))
        yield found


@contextlib.contextmanager
def store_and_log(settings: Settings) -> Iterator[tuple[Inspector, Inspector]]:
    """Open the store, which has the leases, and what has the log; the same where none is beside it."""
    with all_inspectors(settings) as stores:
        yield stores["store"], stores.get("log", stores["store"])


def labelled(answers: dict[str, str]) -> str:
    """Return the answers of `all_inspectors` as text: each with its name where there are two."""
    if len(answers) == 1:
        return answers["store"]
    return "\n".join(f"{name}: {answer}" for name, answer in answers.items())


def moment(text: str, now: float) -> float:
    """Return the time (seconds since the epoch) of an age, a date or a time; local where it has no offset.

    Raises `UsageError`.
    """
    from datetime import datetime  # noqa: PLC0415 - not for --help

    from oncecron.core.errors import UsageError  # noqa: PLC0415 - not for --help
    from oncecron.core.units import parse_duration  # noqa: PLC0415 - not for --help

    try:
        return now - parse_duration(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--since: {text!r} is neither an age such as 2h or 7d, nor a time such as 2026-11-20 or "
            "2026-11-20T02:00+01:00"
        ) from error


def output_format(settings: Settings) -> str:
    """Return the chosen format. Raises `UsageError` when two were chosen."""
    from oncecron.core.errors import UsageError  # noqa: PLC0415 - not for --help

    chosen: str = settings["format"]
    if not settings["json"]:
        return chosen
    if settings.typed("format") and chosen != "json":
        raise UsageError(f"--json and --format {chosen}: choose one")
    return "json"


__all__ = [
    "FILES",
    "HOSTS",
    "KEYS",
    "OUTPUT_OPTIONS",
    "STORE_OPTIONS",
    "LazyGroup",
    "TableCommand",
    "all_inspectors",
    "answer",
    "labelled",
    "moment",
    "output_format",
    "store_and_log",
    "store_inspector",
]
