"""The option table: each option's name, help, environment variable, where it may be configured, and its value.

The parser of `run`, the help, the configuration file, the test of the manual and the completion use this table.
Values stay text until `convert` makes the value of it, so that every source is checked alike.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import KEY_LETTERS as KEY_LETTERS  # noqa: PLC0414 - what KEY_RULE says
from oncecron.core.model import is_key as is_key  # noqa: PLC0414
from oncecron.core.timing import LONGEST_CONNECT_TIMEOUT, LONGEST_TTL, MINIMUM_TTL
from oncecron.core.units import parse_duration, parse_range, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, Literal

    from oncecron.stores.reader import Reader

    Kind = Literal[
        "text", "duration", "range", "flag", "count", "integer", "codes", "choice", "size"
    ]
    Completion = (
        tuple[str, ...]
        | Literal["key", "host", "namespace", "file"]
        | Callable[[Reader], Iterable[str]]
    )
    """The candidates for a value: fixed texts, files, or names from the store, which may be a plugin's."""


KEY_RULE = "use 1 to 200 of A-Z a-z 0-9 . _ : / @ -"
JOB_COMMANDS = ("run", "each")
"""The commands that run a job once per tick: one of them after `oncecron` guards a line of a crontab."""
AUTO_KEY = "auto"
"""The value of --key for the key that is derived from the command. No job can have it as its key."""


class Option(NamedTuple):
    """One option of the command line."""

    name: str
    """Long, without dashes."""
    kind: Kind
    help: str
    placeholder: str = ""
    """What stands for the value in the help; empty: what `_PLACEHOLDERS` has for the kind."""
    group: str = "Options"
    default: str | None = None
    """As it would be typed."""
    environment: str | None = None
    config: Literal["never", "job", "anywhere"] = "never"
    """Where the file may set it: nowhere, in a [job.KEY] section, or also at the top."""
    choices: tuple[str, ...] = ()
    short: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    repeatable: bool = False
    """Whether it may be given several times."""
    joined_by: str = ","
    """What stands between the values of an option that is given several times."""
    completion: Completion = ()
    """For an option without `choices`."""
    table: str = ""
    """The command that alone has it: its place in the file is [job.KEY.COMMAND]."""

    @property
    def metavar(self) -> str:
        """What stands for the value in the help; empty for an option without a value."""
        return self.placeholder or "|".join(self.choices) or _PLACEHOLDERS.get(self.kind, "")

    @property
    def place(self) -> str:
        """Its name among the texts of a [job.KEY] section (`File.jobs`)."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def takes_value(self) -> bool:
        """Whether something follows the name."""
        return self.kind not in ("flag", "count")


_PLACEHOLDERS = {
    "duration": "DURATION",
    "integer": "N",
    "codes": "N,N,...",
    "range": "BASE..CAP",
    "size": "SIZE",
}


def in_group(heading: str, *options: Option) -> tuple[Option, ...]:
    """Return options with the heading below which --help lists them."""
    place = Option._fields.index("group")
    # `_replace` would cost a firing ten times as much.
    return tuple(
        Option._make((*option[:place], heading, *option[place + 1 :])) for option in options
    )


STORE = Option(
    "store", "text", "Keep leases and the log here: postgresql://USER@HOST/DATABASE, redis://HOST, sqlite:///PATH, "
    "or local (this machine only).", "URL", "Where", environment="ONCECRON_STORE", config="anywhere",
    completion=("local", "postgresql://", "redis://", "rediss://", "sqlite:///"),
)  # fmt: skip
LOG = Option(
    "log", "text", "Also write the job-execution log here, and read it from here: postgresql://USER@HOST/DATABASE or "
    "sqlite:///PATH.", "URL", "Where", environment="ONCECRON_LOG", config="anywhere",
    completion=("postgresql://", "sqlite:///"),
)  # fmt: skip
NAMESPACE = Option(
    "namespace", "text", "Use this PostgreSQL schema, Redis key prefix or SQLite file suffix, so that staging and "
    "production can share a server.", "NAME", "Where", "oncecron", "ONCECRON_NAMESPACE", "anywhere",
    completion="namespace",
)  # fmt: skip
CONFIG = Option(
    "config", "text", "Read this configuration file instead of ~/.config/oncecron/config.toml or /etc/oncecron.toml.",
    "FILE", "Where", environment="ONCECRON_CONFIG", completion="file",
)  # fmt: skip
STORE_OPTIONS = (STORE, LOG, NAMESPACE, CONFIG)

_VARIABLE = "ONCECRON_"
VARIABLES = (
    *("STORE", "STORE_FILE", "LOG", "NAMESPACE", "CONFIG", "HOST", "SHELL", "KEY_PREFIX"),
    *("KEY", "TICK", "EXECUTION_ID", "FENCING_TOKEN", "ATTEMPT", "SHARD", "SHARDS", "PLACE"),
    *("ITEM_ID", "ITEM_IDS"),
    *("NOTIFY_ID", "NOTIFY_CHANNEL", "NOTIFY_STATE", "NOTIFY_SUMMARY", "NOTIFY_CHANGES", "NOTIFY_OPEN"),
)  # fmt: skip
"""How the variables go on that oncecron reads, and those that it sets for commands: none of them is mistyped."""


def wrong_variables(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield which variables look like ours and are none: what is wrong with each, and the cure."""
    for name in names:
        meant = name.removeprefix(_VARIABLE)
        if meant != name and meant not in VARIABLES:
            from oncecron.core.suggestion import did_you_mean  # noqa: PLC0415 - for an error message alone

            cure = did_you_mean(
                meant, VARIABLES, "rename or remove it", shown=f"{_VARIABLE}{{}}".format
            )
            yield f"{name} is no variable of oncecron, and is ignored", cure


SHELL = Option(
    "shell", "text",
    "Run STRING with $SHELL -c, as cron runs a line, instead of COMMAND. Without $SHELL, use /bin/sh.", "STRING",
    "What", short="c",
)  # fmt: skip
BOURNE_SHELL = "/bin/sh"
OWN_SHELL = "oncecron-shell"
"""Our program for SHELL= in a crontab. A job must not run under it: it would start oncecron again."""
RUN_OPTIONS = (
    *in_group(
        "What",
        Option(
            "key", "text", "Name the job. Use the same key on every host. auto: derive the key from the command, as "
            "`oncecron crontab wrap` does.", "KEY", completion="key",
        ),
        SHELL,
        Option(
            "pipefail", "flag", "Let a pipe in STRING fail with any of its programs, not with the last one alone. If "
            "$SHELL cannot, use bash.", config="job",
        ),
        Option(
            "only-if", "text", "Skip on this host unless TEST succeeds, run with $SHELL -c before the tick is "
            "claimed. Another host can still run the tick.", "TEST", config="job",
        ),
    ),
    *in_group(
        "Which tick",
        Option(
            "schedule", "text", "Use the latest scheduled time as the tick, even if the start is late. EXPR is five "
            "cron fields in quotes, or a nickname such as @daily.", "EXPR", config="job",
        ),
        Option(
            "tz", "text", "Read --schedule in this time zone, such as Europe/Berlin. Default: the zone of this host.",
            "ZONE", config="job",
        ),
        Option("tick", "text", "Use NAME as the tick, for schedulers other than cron.", "NAME"),
        Option(
            "no-tick", "flag",
            "Only prevent overlap; do not limit to one run per tick. For @reboot, daemons and manual jobs.",
            config="job",
        ),
        Option(
            "min-gap", "duration",
            "Skip if the key last started less than DURATION ago. Default: 30s; with --no-tick: no limit.",
            config="job",
        ),
        Option(
            "starting-deadline", "duration", "Skip if the scheduled time is more than DURATION ago.", config="job",
        ),
        Option(
            "catch-up", "duration", "First run the ticks of --schedule that no host started and that are younger than "
            "DURATION, oldest first, at most 100; last: only the newest of them.", "DURATION|last", config="job",
            choices=("last",), minimum=1,
        ),
        Option(
            "spread", "duration", "Wait up to DURATION before claiming the tick: for another time on each host and "
            "at each tick. It stays the same tick.", default="0s", config="anywhere",
        ),
        Option(
            "again", "flag", "Run the tick again by hand, although it has already run. Never overlaps a running job.",
        ),
    ),
    *in_group(
        "When it is busy or fails",
        Option(
            "wait", "duration", "If the key is already running, wait up to DURATION for it to end before skipping.",
            default="0s", config="job",
        ),
        Option(
            "failover", "flag", "Wait while another host runs the tick. If that host dies or is cut off, a waiting "
            "host runs the tick again.", config="job",
        ),
        Option(
            "retries", "integer", "Retry up to N times after a failure or a timeout, counted across all hosts.",
            config="job", minimum=0, maximum=1000,
        ),
        Option(
            "retry-delay", "range", "Wait a random time before a retry: at least BASE, at most twice BASE. The upper "
            "limit doubles with each attempt, up to CAP. A single value is a fixed delay.", default="5s..5m",
            config="job",
        ),
        Option(
            "no-retry-on", "codes",
            "Do not retry after these exit statuses, such as 64,65,78. 124 means --timeout, 128+N means signal N.",
            config="job", minimum=1, maximum=255,
        ),
        Option(
            "shards", "integer", "Split the tick into N shards that several hosts run in parallel. $ONCECRON_SHARD "
            "has the number of the shard, from 0.", default="1", config="job", minimum=1, maximum=1000,
        ),
        Option(
            "timeout", "duration",
            "Stop the command after this long: TERM, then KILL after --grace. The exit status is 124.", config="job",
            minimum=0.001,
        ),
        Option(
            "grace", "duration", "Wait this long between TERM and KILL.", default="10s", config="anywhere",
        ),
        Option(
            "skip-exit", "integer", "Exit with this status when the firing is skipped.", default="0",
            config="anywhere", minimum=0, maximum=255,
        ),
        Option(
            "on-store-error", "choice",
            "Choose what to do if the store is unreachable: fail (exit status 69), skip, or run without protection.",
            default="fail", config="anywhere", choices=("fail", "skip", "run"),
        ),
        Option(
            "connect-timeout", "duration", "Keep trying to reach the store for this long.", default="30s",
            config="anywhere", minimum=1, maximum=LONGEST_CONNECT_TIMEOUT,
        ),
    ),
    *in_group(
        "Where",
        *(STORE, LOG, NAMESPACE),
        Option(
            "ttl", "duration",
            "Stop the job before the store has been unreachable for this long. Unrelated to how long the job runs.",
            default="60s", config="anywhere", minimum=MINIMUM_TTL, maximum=LONGEST_TTL,
        ),
        Option(
            "capture", "size", "Record the last SIZE bytes of the command's standard output and error: 4096, 64k, at "
            "most 1M. 0 records nothing.", default="0", config="anywhere",
        ),
        Option(
            "record-command", "choice",
            "Record and show the command in full, with its secrets masked, or only the name of its program.",
            default="masked", config="anywhere", choices=("full", "masked", "program"),
        ),
        CONFIG,
        Option(
            "pass-store", "flag",
            "Leave $ONCECRON_STORE and $ONCECRON_LOG in the environment of the command, for oncecron inside it.",
            config="anywhere",
        ),
        Option(
            "verbose", "count", "Say what happens: a start, a skip, a long wait; -vv adds tracebacks.", short="v",
        ),
        Option(
            "dry-run", "flag", "Say what would be started now, or why nothing would. Start and record nothing.",
        ),
    ),
)  # fmt: skip

RUN_OPTION = {option.name: option for option in RUN_OPTIONS}
"""The options of `run` by their names."""

_DIGITS = 20
"""Of a number that count: one with more is too large for every option, and Python converts at most 4,300."""


def convert(option: Option, text: str) -> Any:
    """Return the value of an option's text. Raises `ValueError` that says what is expected."""
    if option.kind == "flag":
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text == "true"
    if option.kind == "choice" and text not in option.choices:
        from oncecron.core.suggestion import not_one_of  # noqa: PLC0415 - for an error message alone

        raise ValueError(not_one_of(text, option.choices))
    if option.kind in ("integer", "count"):
        return _within_bounds(option, text, _integer(text))
    if option.kind == "duration":
        is_word = text in option.choices
        return text if is_word else _within_bounds(option, text, _duration(option, text))
    if parse := {"size": parse_size, "range": parse_range}.get(option.kind):
        return parse(text)
    if option.kind == "codes":
        return frozenset(_within_bounds(option, code, _integer(code)) for code in text.split(","))
    if option.name == "only-if" and not text.strip():
        raise ValueError("the test is empty (an unset variable?)")
    return text


def values_of(texts: Mapping[str, str], options: Iterable[Option] = RUN_OPTIONS) -> dict[str, Any]:
    """Return every option, converted: from `texts`, else its default, else None. Without `options` those of `run`.

    Raises `ValueError` as `convert` does, with the option in front.
    """
    values = {}
    for option in options:
        text = texts.get(option.name, option.default)
        try:
            values[option.name] = None if text is None else convert(option, text)
        except ValueError as error:
            raise ValueError(f"--{option.name}: {error}") from error
    return values


def _integer(text: str) -> int:
    if not text.isascii() or not text.removeprefix("-").isdigit():
        unset = "" if text else " (an unset variable?)"
        raise ValueError(f"{text!r} is not a whole number{unset}; write digits alone, such as 10")
    return int(text[:_DIGITS])


def _duration(option: Option, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        words = "".join(f"; or {each}" for each in option.choices)
        raise ValueError(f"{error}{words}") from error


def _within_bounds(option: Option, text: str, value: float) -> float:
    if option.minimum is not None and value < option.minimum:
        is_none = not (value or option.default) and option.kind == "duration"
        least = f"{option.minimum:g}{_unit(option)}{'; for none, leave it out' if is_none else ''}"
        raise ValueError(f"{text!r} is too small; the minimum is {least}")
    if option.maximum is not None and value > option.maximum:
        raise ValueError(f"{text!r} is too large; the maximum is {option.maximum:g}{_unit(option)}")
    return value


def _unit(option: Option) -> str:
    return " s" if option.kind == "duration" else ""
