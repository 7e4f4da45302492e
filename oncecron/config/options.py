"""Every option, declared once: its name, its help, its environment variable, where it may be configured.

The parser of `run`, its help, the configuration file, the man page's test and the completion are made from
this table. Values stay text until `config` converts them, so that every source is checked alike.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import MINIMUM_TTL

if TYPE_CHECKING:
    from typing import Literal

    Kind = Literal[
        "text", "duration", "range", "flag", "count", "integer", "codes", "choice", "size"
    ]
    Completion = tuple[str, ...] | Literal["key", "host", "namespace", "file"]
    """What completion offers for a value: fixed texts, names that the store knows, or files."""


KEY_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@-")
KEY_RULE = "1 to 200 of A-Z a-z 0-9 . _ : / @ -"
_LONGEST_KEY = 200


class Option(NamedTuple):
    """One option of the command line."""

    name: str
    """Long, without dashes."""
    kind: Kind
    help: str
    metavar: str = ""
    group: str = "Options"
    default: str | None = None
    """As it would be typed."""
    environment: str | None = None
    config: Literal["never", "job", "anywhere"] = "never"
    """Whether it may stand in a [job.KEY] section alone, or at the top of the file too."""
    choices: tuple[str, ...] = ()
    short: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    repeatable: bool = False
    """Several values are joined by commas, which may be typed as well."""
    completion: Completion = ()
    """Where `choices` do not say it."""

    @property
    def takes_value(self) -> bool:
        """Whether something follows the name."""
        return self.kind not in ("flag", "count")


def is_key(text: str) -> bool:
    """Return whether a text can be a key: `KEY_RULE`."""
    return 0 < len(text) <= _LONGEST_KEY and KEY_LETTERS.issuperset(text)


STORE = Option(
    "store",
    "text",
    "Where leases and the log are: postgresql://USER@HOST/DATABASE, redis://HOST, sqlite:///PATH, or local "
    "(this machine alone).",
    "URL",
    "Where",
    environment="ONCECRON_STORE",
    config="anywhere",
    completion=("local", "postgresql://", "redis://", "rediss://", "sqlite:///"),
)
LOG = Option(
    "log",
    "text",
    "Where the job-execution log is kept as well: postgresql://USER@HOST/DATABASE or sqlite:///PATH; "
    "history reads it there.",
    "URL",
    "Where",
    environment="ONCECRON_LOG",
    config="anywhere",
    completion=("postgresql://", "sqlite:///"),
)
NAMESPACE = Option(
    "namespace",
    "text",
    "PostgreSQL schema (prefix of the Redis keys, suffix of the SQLite file), so that staging and production can "
    "share a server.",
    "NAME",
    "Where",
    "oncecron",
    "ONCECRON_NAMESPACE",
    "anywhere",
    completion="namespace",
)
CONFIG = Option(
    "config",
    "text",
    "Read this file instead of ~/.config/oncecron/config.toml or /etc/oncecron.toml.",
    "FILE",
    "Where",
    environment="ONCECRON_CONFIG",
    completion="file",
)
STORE_OPTIONS = (STORE, LOG, NAMESPACE, CONFIG)

_WHAT = "What"
_TICK = "Which tick"
_BUSY = "When it is busy or fails"
_WHERE = "Where"

SHELL = Option(
    "shell",
    "text",
    "Run this by $SHELL -c, as cron runs a line, instead of a command; by /bin/sh where there is no $SHELL.",
    "STRING",
    _WHAT,
    short="c",
)
BOURNE_SHELL = "/bin/sh"
OWN_SHELL = "oncecron-shell"
"""Our program that stands for $SHELL in a crontab; it is no shell for a command."""
RUN_OPTIONS = (
    Option(
        "key",
        "text",
        "Name of what must run once; the same on every host.",
        "KEY",
        _WHAT,
        completion="key",
    ),
    SHELL,
    Option(
        "schedule",
        "text",
        "The line's five fields or @daily and the like: the tick is the latest scheduled time, however late.",
        "EXPR",
        _TICK,
        config="job",
    ),
    Option(
        "tz",
        "text",
        "Zone of --schedule; the host's, as its cron's, when not given.",
        "ZONE",
        _TICK,
        config="job",
    ),
    Option("tick", "text", "The tick itself, by any other scheduler's name for it.", "NAME", _TICK),
    Option(
        "no-tick",
        "flag",
        "Never two at a time, and no more: for @reboot, daemons, jobs by hand.",
        "",
        _TICK,
        config="job",
    ),
    Option(
        "min-gap",
        "duration",
        "Refuse a start this soon after the last one (30s; with --no-tick off unless given).",
        "DURATION",
        _TICK,
        config="job",
    ),
    Option(
        "starting-deadline",
        "duration",
        "Refuse a start later than this after its scheduled time.",
        "DURATION",
        _TICK,
        config="job",
    ),
    Option("again", "flag", "Run the tick once more, by hand; never while it runs.", "", _TICK),
    Option(
        "wait",
        "duration",
        "If somebody else is running the key, ask again for this long.",
        "DURATION",
        _BUSY,
        "0s",
        config="job",
    ),
    Option(
        "failover",
        "flag",
        "If another host runs the tick, wait; should that host be lost, one of those that wait runs the next attempt.",
        "",
        _BUSY,
        config="job",
    ),
    Option(
        "retries",
        "integer",
        "Run the tick again when it failed or timed out: so many further attempts, on all hosts together.",
        "N",
        _BUSY,
        config="job",
        minimum=0,
        maximum=1000,
    ),
    Option(
        "retry-delay",
        "range",
        "How long to wait before a retry: at random from BASE to its double, which doubles with each attempt up to "
        "CAP; one value is just that.",
        "BASE..CAP",
        _BUSY,
        "5s..5m",
        config="job",
    ),
    Option(
        "no-retry-on",
        "codes",
        "Exit statuses after which no attempt follows, such as 64,65,78; 124 is a --timeout, 128 + N a signal.",
        "N,N,...",
        _BUSY,
        config="job",
        minimum=1,
        maximum=255,
    ),
    Option(
        "shards",
        "integer",
        "Divide the tick into N shards, which several hosts run at once; $ONCECRON_SHARD tells the command its own, "
        "from 0.",
        "N",
        _BUSY,
        "1",
        config="job",
        minimum=1,
        maximum=1000,
    ),
    Option(
        "timeout",
        "duration",
        "Stop the command after this long: TERM, --grace, KILL, exit status 124.",
        "DURATION",
        _BUSY,
        config="job",
        minimum=0.001,
    ),
    Option(
        "grace",
        "duration",
        "From TERM to KILL.",
        "DURATION",
        _BUSY,
        "10s",
        config="anywhere",
    ),
    Option(
        "skip-exit",
        "integer",
        "Exit status of a firing that was skipped.",
        "N",
        _BUSY,
        "0",
        config="anywhere",
        minimum=0,
        maximum=255,
    ),
    Option(
        "on-store-error",
        "choice",
        "When the store is away: fail (69), skip, or run without any promise.",
        "fail|skip|run",
        _BUSY,
        "fail",
        config="anywhere",
        choices=("fail", "skip", "run"),
    ),
    Option(
        "connect-timeout",
        "duration",
        "How long to try to reach the store.",
        "DURATION",
        _BUSY,
        "30s",
        config="anywhere",
        minimum=1,
    ),
    *(STORE, LOG, NAMESPACE),
    Option(
        "ttl",
        "duration",
        "How long the store may be away from a running job before the job is stopped; "
        "never a guess of how long it runs.",
        "DURATION",
        _WHERE,
        "60s",
        config="anywhere",
        minimum=MINIMUM_TTL,
    ),
    Option(
        "capture",
        "size",
        "Record the last so many bytes that the command writes to its standard output and error: 4096, 64k, "
        "at most 1M; 0 none.",
        "SIZE",
        _WHERE,
        "0",
        config="anywhere",
    ),
    CONFIG,
    Option(
        "verbose",
        "count",
        "Tell of skips; -vv also where an error came from.",
        "",
        _WHERE,
        short="v",
    ),
)

RUN_OPTION = {option.name: option for option in RUN_OPTIONS}
"""The options of `run` by their names."""
