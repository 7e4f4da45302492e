"""Whatever a parser reads, it answers, or raises the error that it documents; and it does not take for ever.

Texts are put together from what each parser knows, and from anything else. Some are one piece a thousand times over,
which shows a parser that looks at everything again and again. ONCECRON_TEST_PARSED says how many each parser reads.
"""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import story_stores
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from oncecron.config.file import read_file
from oncecron.config.options import RUN_OPTIONS, values_of
from oncecron.config.run_parser import parse_run
from oncecron.core import derived_key, masking, tick, units
from oncecron.core import shell_words as words
from oncecron.core.errors import UNREADABLE, ConfigurationError, StoreRefusesError, UsageError
from oncecron.core.facts import state_of
from oncecron.core.model import CAUSES, OUTCOMES, Firing, Holder, stored_request
from oncecron.host import local_time
from oncecron.run import job, spool
from oncecron.stores import check_address, check_with_driver
from oncecron.stores.address import parse_address
from oncecron.stores.postgres import look
from oncecron.stores.redis.resp import ProtocolError, ReplyError, ReplyReader
from oncecron_crontab import directives, fields, percent_sign, scanner

PARSED = int(os.environ.get("ONCECRON_TEST_PARSED", "50"))
REPEATED = 1000
NOW = 1_800_000_000.0


class Parser(NamedTuple):
    """What reads, what it may be given, and what it may raise."""

    read: Callable[[Any], object]
    given: SearchStrategy[Any]
    raises: tuple[type[Exception], ...] = ()


def texts(*pieces: str) -> SearchStrategy[str]:
    """Return texts made of these pieces and of anything."""
    piece = st.one_of(st.sampled_from(pieces), st.sampled_from(pieces), st.text(max_size=4))
    mixed = st.lists(piece, max_size=12).map("".join)
    repeated = st.builds(
        lambda before, piece, after: before + piece * REPEATED + after,
        mixed, st.sampled_from([piece for piece in pieces if piece] or ["x"]), mixed,
    )  # fmt: skip
    return st.one_of(mixed, mixed, mixed, repeated)


def as_bytes(strategy: SearchStrategy[str]) -> SearchStrategy[bytes]:
    """Return the same as bytes, of which some are no UTF-8."""
    encoded = strategy.map(lambda text: text.encode("utf-8", "surrogatepass"))
    return st.one_of(encoded, st.builds(bytes.__add__, encoded, st.binary(max_size=3)))


NUMBERS = ("0", "1", "59", "60", "-1", "9" * 30, "1e9", ".5", "٣", "²")
DURATIONS = texts(*NUMBERS, "ms", "s", "m", "h", "d", ".", "..", "k", "M", " ")
SCHEDULES = texts(
    *NUMBERS, " ", " ", " ", "*", "*/", "-", ",", "/", "mon", "jan", "@daily", "@reboot", "L", "#", "?", "~", "W",
)  # fmt: skip
CRONTABS = texts(
    "* * * * * ", "0 2 * * 1-5 ", "@daily ", "@reboot ", "# oncecron: ", "off", "key=", "no-tick", "tz=", "wait=",
    "MAILTO=", "CRON_TZ=", "SHELL=/bin/sh", "root ", "oncecron run --key k -- ", "cd /tmp && ", "if ", "then ",
    "true", "\n", "\n", "\t", "\\", "%", '"', "'", "\r", "\0", "$(", "`", ")", "|", ";", "&", "<<", ">", "#", "=",
)  # fmt: skip
URLS = texts(
    "postgresql://", "redis://", "rediss+sentinel://", "unix://", "sqlite:///", "local", "redis+cluster://", "u:p@",
    "@", ":", "/", "?", "&", "=", "%2F", "%zz", "%", "h", "h:1", "[::1]", "[", "]", ",", "#", "db=", "ssl_",
    "sslmode=", "wait=1", "keep=", "password=", "\0", "\n", " ",
)  # fmt: skip
TOML = texts(
    "store = ", "store_file = ", "ttl = ", "schedule = ", "command = ", "record_command = ", "executions = ", "key.",
    "[job.", "[job.k]\n", "[retention]\n", "[redis]\n", "]", '"local"', '"90s"', "1", "true", "inf", "nan",
    "wait = 1\n", "1979-05-27", "{}", "[1, 2]", "{a = 1}", "[[", "'''", '"', "\n", " = ", "\\u0000", "#",
)  # fmt: skip
ARGUMENTS = st.lists(
    st.one_of(
        st.sampled_from(
            [f"--{option.name}" for option in RUN_OPTIONS] + ["-v", "-vv", "-c", "-vcx", "--", "-", "--=", "x", ""]
        ),
        st.builds(
            "--{}={}".format, st.sampled_from([option.name for option in RUN_OPTIONS]), DURATIONS
        ),
        st.text(max_size=5),
    ),
    max_size=8,
)  # fmt: skip
REPLIES = as_bytes(
    texts(
        *("+OK\r\n", "-ERR x\r\n", ":1\r\n", "$3\r\nabc\r\n", "$-1\r\n", "*2\r\n", "*-1\r\n", "%1\r\n", ">2\r\n"),
        *("*", "$", ":", "\r\n", "-2", "99999999999", "*1\r\n", "#t\r\n", "_\r\n", ",1.5\r\n", "HTTP/1.1 400\r\n"),
    )
)  # fmt: skip
VALUES: SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.just([]), st.just({}),
    st.sampled_from([*OUTCOMES, *CAUSES, "execution", "skip", "stop", 10**400, -1, 1 << 63]),
)  # fmt: skip
FIRING = Firing(
    key="k", shard=0, tick=tick.minute_tick(NOW), owner="6a1f", holder=Holder("web1", 1, "batch"), command="true",
    fired_at=NOW, ttl=60.0, min_gap=None, starting_deadline=None, again=False, schedule=None, zone=None, retries=0,
)  # fmt: skip


def records() -> SearchStrategy[Any]:
    """Return values like those that a file of the spool could hold."""
    record = spool.start_record(FIRING, None)  # type: ignore[arg-type]
    fields = st.fixed_dictionaries({}, optional=dict.fromkeys(record, VALUES))
    return st.one_of(VALUES, fields, fields.map(lambda changed: record | changed))


class EndOfStreamError(Exception):
    """The other side has sent all."""


def replies(sent: bytes) -> list[object]:
    """Read replies until the stream ends, from pieces of three bytes."""
    pieces = [sent[at : at + 3] for at in range(0, len(sent), 3)][::-1]

    def more() -> bytes:
        if not pieces:
            raise EndOfStreamError
        return pieces.pop()

    reader, found = ReplyReader(more), []
    while True:
        found.append(reader.reply())
        assert isinstance(found[-1], bytes | int | list | ReplyError | None)


def crontab(data: bytes) -> None:
    """Read it as both kinds, and all that its lines hold."""
    for system in (False, True):
        read = scanner.scan(data, system=system)
        assert b"".join(line.raw for line in read.lines) == data
        read.problems()
        directives.read_directives(read)
        for entry in read.entries():
            read.environment(entry)
            percent_sign.split_command(entry.command)
            derived_key.derived_key(percent_sign.shell_command(entry.command))


def store(text: str) -> None:
    """Read the address of a store as a firing does, and hide its password."""
    masking.masked(text)
    address = parse_address(text)
    check_address(address)
    check_with_driver(address)


def file(text: bytes) -> None:
    with tempfile.NamedTemporaryFile() as written:
        written.write(text)
        written.flush()
        read_file(written.name)


def schedule(text: str) -> None:
    """Read it, and look for its tick and for the next ones."""
    local_time.scheduled_tick(text, "Europe/Berlin", NOW)
    ticks = local_time.next_ticks(text, None, NOW)
    assert next(ticks) != next(ticks)


def options(arguments: list[str]) -> None:
    """Read the arguments of `run`, and convert their values."""
    if parsed := parse_run(arguments):
        values_of(parsed.given)


def request(values: tuple[Any, ...]) -> None:
    """Read what stands in a store as a request, and judge it."""
    job.wrong_with(stored_request(*values))


def rows(columns: list[list[bytes | None]]) -> None:
    """Read what PostgreSQL answers."""
    row, log = (
        {
            name: column.decode("utf-8", "replace")
            for name, column in zip(names, row, strict=True)
            if column is not None
        }
        for names, row in zip(LOOKED, columns, strict=True)
    )
    look.suffices(row, FIRING, None)
    state_of(look.facts_of(row, FIRING, NOW, closely=False))
    state_of(look.facts_of(row | log, FIRING, NOW, closely=True))


LOOK = (Path(look.__file__).parent / "sql" / "look.sql").read_text()
LOOKED = [
    re.findall(
        r"out (\w+) ", re.findall(rf"function {{ns}}.{name}_v1\((.*?)\$\$", LOOK, re.DOTALL)[0]
    )
    for name in ("look", "look_at_log")
]


SECONDS = ("now", "since", "until", "high_water", "ttl", "_at", "last_start", "last_lateness")
FLAGS = ("in_recovery", "own_backend", "has_session", "known", "retrying", "is_own", "forgotten")
WORDS = (
    "isolation", "kind", "author", "reason", "tick", "outcome", "by", "host", "user", "cause", "lock",
)  # fmt: skip


def column(name: str) -> SearchStrategy[bytes | None]:
    """Return what the server may send for a column of this name."""
    if name.endswith(SECONDS):
        number = st.floats().map(lambda value: f"{value}".replace("inf", "Infinity").encode())
        return st.one_of(st.none(), number)
    if name.endswith((*FLAGS, "has_lease")):
        return st.sampled_from([None, b"t"])
    if name.endswith(WORDS):
        known = (None, b"running", b"key", b"host", f"{FIRING.tick.text}".encode())
        return st.one_of(st.sampled_from(known), st.binary(max_size=3))
    if name == "divisions":
        return st.sampled_from([None, b"1 a", f"2 {FIRING.tick.text}\n1 b".encode()])
    return st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1).map(lambda value: b"%d" % value))


ROWS = st.tuples(*(st.tuples(*map(column, names)).map(list) for names in LOOKED)).map(list)

PARSERS = {
    "duration": Parser(units.parse_duration, DURATIONS, (ValueError,)),
    "range": Parser(units.parse_range, DURATIONS, (ValueError,)),
    "size": Parser(units.parse_size, DURATIONS, (ValueError,)),
    "schedule": Parser(schedule, SCHEDULES, (ValueError,)),
    "field": Parser(lambda field: [fields.read_field(position, field) for position in range(5)], as_bytes(SCHEDULES)),
    "tick": Parser(tick.named_tick, texts("2026-11-20T02:00Z", "a", " ", "\0"), (ValueError,)),
    "crontab": Parser(crontab, as_bytes(CRONTABS)),
    "words": Parser(words.tokens, as_bytes(CRONTABS), (words.UnclosedError,)),
    "canonical": Parser(words.canonical, as_bytes(CRONTABS)),
    "command": Parser(masking.masked, st.one_of(CRONTABS, URLS)),
    "store": Parser(store, URLS, (ConfigurationError, StoreRefusesError)),
    "file": Parser(file, as_bytes(TOML), (ConfigurationError, UsageError)),
    "options": Parser(options, ARGUMENTS, (ValueError,)),
    "replies": Parser(replies, REPLIES, (ProtocolError, EndOfStreamError)),
    "record": Parser(spool.is_record, records()),
    "request": Parser(request, st.tuples(VALUES, VALUES, VALUES, VALUES)),
    "rows": Parser(rows, ROWS, UNREADABLE),
}  # fmt: skip


@pytest.mark.timeout(300 + PARSED)  # many times as long as it takes
@pytest.mark.parametrize("name", PARSERS)
@seed(story_stores.seed())
@settings(
    max_examples=PARSED,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_it_raises_only_what_it_documents(name: str, data: st.DataObject) -> None:
    """A traceback, or a firing that spins, is a bug: what is read may come from anybody."""
    parser = PARSERS[name]
    read = data.draw(parser.given)
    try:
        parser.read(read)
    except parser.raises:
        return
