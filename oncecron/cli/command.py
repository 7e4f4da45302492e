"""Shared by all commands: click commands built from option tables, and access to the store.

click only splits the command line. Values stay text until `config.settings.Settings` converts them, so that
every source is checked alike and an error names the option.

A command's module is imported when the command is used or its help is printed. No module imports a driver:
`open_store` does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from oncecron.cli import output
from oncecron.cli.meant import option_of, refuse_times, unexpected
from oncecron.cli.output import Writer
from oncecron.cli.terminal import style_for
from oncecron.config.options import STORE_OPTIONS as STORE_OPTIONS  # noqa: PLC0414 - of most commands
from oncecron.config.options import Option
from oncecron.config.run_parser import is_option
from oncecron.config.settings import naming
from oncecron.core.errors import NotFoundError, OncecronError, UsageError
from oncecron.core.log_rows import INTERNAL
from oncecron.core.timing import READER_TIMEOUT
from oncecron.log.time_span import EXPECTED, read_time
from oncecron.run.process_tree import refuse_core
from oncecron.run.spool import spool_of
from oncecron.stores import check_with_driver, open_reader
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from click.shell_completion import CompletionItem

    from oncecron.cli.table import Kind
    from oncecron.config.options import Completion
    from oncecron.config.settings import Settings
    from oncecron.run.spool import Spool
    from oncecron.stores.address import Address
    from oncecron.stores.reader import Reader


COMPLETION_VARIABLE = "_ONCECRON_COMPLETE"
"""The environment variable that the scripts of `oncecron completion` set."""


def completer(what: Completion) -> Callable[..., list[CompletionItem]]:
    """Return the callback that click calls to complete a value."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from oncecron.cli.completion import candidates  # noqa: PLC0415 - it imports this module

        return candidates(what, context, incomplete)

    return complete


_COMPLETED: Mapping[str, Completion] = {
    "KEY": "key",
    "HOST": "host",
    "FILE": "file",
    "COMMAND": "file",
}


def _argument(metavar: str) -> click.Argument:
    found = (completer(what) for name, what in _COMPLETED.items() if name in metavar)
    return click.Argument(
        ["words"],
        metavar=metavar,
        nargs=-1 if "..." in metavar else 1,
        required=metavar.isalpha(),
        shell_complete=next(found, None),
    )


UTC = Option("utc", "flag", "Show times in UTC instead of this host's time zone.", "", "Output")
FORMAT = Option(
    "format", "choice",
    "Print a table, or all fields as JSON (one array), as ndjson (one JSON object per line), or as CSV.",
    group="Output", default="table", choices=("table", "json", "ndjson", "csv"),
)  # fmt: skip
JSON = Option("json", "flag", "Same as --format json.", "", "Output")
ALL = Option(
    "all", "flag", f"Also show what oncecron runs for itself: keys that begin with {INTERNAL}.",
    group="Which records",
)  # fmt: skip
WIDE = Option(
    "wide", "flag", "Show all columns of a table in full, with exact times, as in a pipe. Without it, a table fits the "
    "terminal.", "", "Output",
)  # fmt: skip
TABLE_OPTIONS = (FORMAT, JSON, WIDE)
"""How a table is written that has no times."""
QUERY_OPTIONS = (*TABLE_OPTIONS, UTC, *STORE_OPTIONS)
"""How an answer is written, and where it is from."""


def answer(context: click.Context, text: str) -> NoReturn:
    """Print a text and exit, for options such as --help. Raises `OutputError`, `BrokenPipeError`."""
    output.say(text, output.standard_output())
    context.exit()


class UsageErrorWithCure(click.UsageError):
    """A usage error whose message already says what to do, so that it needs no pointer to --help."""


class HelpfulCommand(click.Command):
    """A command whose --help reports a failed write, as every other output does."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return click's option with our way to print."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _help
        return option


def _help(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        answer(context, context.get_help())


class TableCommand(HelpfulCommand):
    """A command whose options come from a table."""

    def __init__(
        self,
        name: str,
        options: Sequence[Option],
        use: Callable[[dict[str, str], list[str]], int],
        *,
        about: str,
        words: str | click.Argument = "",
        examples: Sequence[str] = (),
        greedy: bool = False,
    ) -> None:
        """`use` gets the typed values by option, and the words; `greedy`: no options after the first word."""
        arguments = [_argument(words) if isinstance(words, str) else words] if words else []
        super().__init__(
            name,
            params=[*map(_click_option, options), *arguments],
            callback=self._call,
            help=about,
            context_settings={"allow_interspersed_args": not greedy, "allow_extra_args": True},
        )
        self.examples = tuple(examples)
        self.table = tuple(options)
        self._use = use

    def _call(self, **values: Any) -> int:
        refuse_core()
        words = values.get("words")
        given = self.typed_values(click.get_current_context())
        try:
            return self._use(given, [words] if isinstance(words, str) else list(words or ()))
        except OncecronError as error:
            error.args = (naming(str(error), given),)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the line. Raises `click.UsageError` for a word too many, `UsageError` for an option too many."""
        try:
            if not ctx.resilient_parsing:
                self._refuse_options_as_values(args, greedy=not ctx.allow_interspersed_args)
            super().parse_args(ctx, [*args])  # click empties it
            if not ctx.resilient_parsing:
                self._judge_words(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # for the command whose --help the message names
            raise
        return ctx.args

    def _judge_words(self, ctx: click.Context, args: Sequence[str]) -> None:
        """Take a word for the option that it is meant for. Raises `UsageError`, `click.UsageError`."""
        self._take_for_option(ctx)
        if ctx.allow_interspersed_args:
            words = ctx.params.get("words") or ()
            every = [*ctx.args, *([words] if isinstance(words, str) else words)]
            refuse_times(args, every, self.table, self.typed_values(ctx))
        if ctx.args:
            metavar = next((each.metavar for each in self.params[len(self.table) :]), None)
            sentence = unexpected(ctx.command_path, metavar or "", ctx.args[0])
            if sentence:
                raise UsageErrorWithCure(sentence, ctx)
            ctx.fail(f"unexpected argument {ctx.args[0]!r}")

    def _take_for_option(self, ctx: click.Context) -> None:
        option = option_of(self.name or "", ctx.args[0], self.table) if ctx.args[:1] else None
        if option is None or ctx.args[1:] or option.name in self.typed_values(ctx):
            return
        ctx.params[_identifier(option)] = tuple(ctx.args)
        ctx.set_parameter_source(_identifier(option), ParameterSource.COMMANDLINE)
        ctx.args = []

    def _refuse_options_as_values(self, args: Sequence[str], *, greedy: bool) -> None:
        """Raise `UsageError` for an option in the place of a value: click would take it for the value."""
        option = None
        for word in [*args, ""]:
            if option is None and word == "--":
                return
            is_value = option is not None and not is_option(word, self.table)
            if option and not is_value:
                raise UsageError(
                    f"--{option.name} has no value before {word!r} (an unset variable?); "
                    f"a value that begins with - is written --{option.name}=VALUE"
                )
            if greedy and not is_value and not word.startswith("-"):
                return
            option = None if option else self._option_before_its_value(word)

    def _option_before_its_value(self, word: str) -> Option | None:
        """Return the option whose value is the next word: that of `--key`, `-c`, or `-vc`."""
        valued = [option for option in self.table if option.takes_value]
        if word.startswith("--"):
            return next((option for option in valued if f"--{option.name}" == word), None)
        letters = {option.short: option for option in valued if word[:1] == "-"}
        first = next((at for at, letter in enumerate(word) if letter in letters), None)
        return letters[word[-1]] if first == len(word) - 1 else None

    def typed_values(self, context: click.Context) -> dict[str, str]:
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

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the examples, each on a line of its own."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{' ' * formatter.current_indent}{line}\n")


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
    return click.Option(
        names,
        type=str,
        metavar=option.metavar,
        help=text,
        multiple=True,
        callback=None if option.repeatable else _only_one,
        shell_complete=completer(option.choices or option.completion),
    )


def _only_one(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> Any:
    """Return all values of an option. Raises `UsageError` for two: click would drop the first without a word."""
    if len(values) > 1 and not context.resilient_parsing:
        raise UsageError(f"{parameter.opts[-1]} is given twice; leave one of them out")
    return values


def _as_text(option: Option, value: Any) -> str:
    if option.kind == "flag":
        return "true"
    return str(value) if option.kind == "count" else option.joined_by.join(value)


@contextlib.contextmanager
def store_reader(settings: Settings, *, log: bool = False) -> Iterator[Reader]:
    """Open the store for queries; `log`: the one that holds the log. Raises `StoreError`."""
    beside = settings.log()  # checked also where only the store is asked
    store = open_store((beside if log else None) or settings.address(), settings["namespace"])
    try:
        yield store
    except NotFoundError as error:
        if store.unreadable:
            error.args = ("what was asked for may be in a row that cannot be read",)
            error.exit_status = incomplete(store)
        raise
    finally:
        store.close()


def open_store(address: Address, namespace: str) -> Reader:
    """Return a store, whose slow answers a person at a terminal is told of. Raises `StoreError`."""
    reader = open_reader(address, namespace)
    reader.waits_for = f"no answer from {masked(address.target)} yet; it has {READER_TIMEOUT:g} s"
    return reader


def spools(settings: Settings) -> list[Spool]:
    """Return the spools with records of this user's firings on this host: of the store, and of the log beside it."""
    addresses = filter(None, (settings.address(), settings.log()))
    return [spool_of(address, settings["namespace"]) for address in addresses]


def spooled_records(settings: Settings) -> int:
    """Return how many records wait in the spools of this user on this host."""
    return sum(1 for spool in spools(settings) for _ in spool.pending())


def check_stores(settings: Settings) -> None:
    """Raise `OncecronError` for an address of the store or the log that does not mend while a command runs."""
    for address in filter(None, (settings.address(), settings.log())):
        check_with_driver(address)


@contextlib.contextmanager
def all_readers(settings: Settings) -> Iterator[dict[str, Reader]]:
    """Open the store and, with --log, the log store, by name. Raises `StoreError`."""
    with contextlib.ExitStack() as opened:
        found = {"store": opened.enter_context(store_reader(settings))}
        if settings.log():
            found["log"] = opened.enter_context(store_reader(settings, log=True))
        yield found


@contextlib.contextmanager
def store_and_log(settings: Settings) -> Iterator[tuple[Reader, Reader]]:
    """Open the store that has the leases, and the one that has the log: the same without --log."""
    with all_readers(settings) as stores:
        yield stores["store"], stores.get("log", stores["store"])


def incomplete(*stores: Reader) -> int:
    """Return the exit status of an answer: 1 if it lacks a row that could not be read, else 0."""
    return int(any(store.unreadable for store in stores))


def with_names(answers: dict[str, str]) -> str:
    """Return the answers of `all_readers` as text; two answers begin with their names."""
    if len(answers) == 1:
        return answers["store"]
    return "\n".join(f"{name}: {answer}" for name, answer in answers.items())


SINCE = Option("since", "text", f"Begin then: {EXPECTED}.", "AGE|TIME", "Which records")
UNTIL = Option(
    "until", "text", "End then, written like --since, instead of now.", "AGE|TIME", "Which records"
)


def moment(
    text: str, now: float, option: str = "since", *, utc: bool, ahead: bool = False
) -> float:
    """Return the time (seconds since the epoch) that a text means, as `read_time` does. Raises `UsageError`."""
    try:
        return read_time(text, now, utc=utc, ahead=ahead)
    except ValueError as error:
        raise UsageError(f"--{option}: {error}") from error


def span_of(settings: Settings, now: float) -> tuple[float | None, float]:
    """Return --since and --until; without --until now is the end. Raises `UsageError`."""
    utc, since, until = settings["utc"], settings["since"], settings["until"]
    begin = None if since is None else moment(since, now, utc=utc)
    end = now if until is None else min(moment(until, now, "until", utc=utc), now)
    if begin is not None and begin >= end:
        raise UsageError("--since is not before --until and before now: nothing lies between them")
    return begin, end


def output_format(settings: Settings) -> str:
    """Return the chosen format. Raises `UsageError` when two were chosen."""
    chosen: str = settings["format"]
    if not settings["json"]:
        return chosen
    if settings.is_typed("format") and chosen != "json":
        raise UsageError(f"--json and --format {chosen} contradict each other; leave one out")
    return "json"


def writer(
    kind: Kind, settings: Settings, *, utc: bool | None = None, zone: str | None = None
) -> Writer:
    """Return what writes the answer of a command. Raises `OutputError`, `UsageError`.

    `utc`: instead of --utc; `zone`: of the times at a terminal, where it is another one.
    """
    stream = output.standard_output()
    utc = settings["utc"] if utc is None else utc
    style = style_for(stream, output_format(settings), utc=utc, zone=zone, wide=settings["wide"])
    return Writer(kind, style, stream)
