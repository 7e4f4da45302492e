"""A role that may fire calls its functions by hand, with arguments of its own making: no key is blocked by it for good.

Each call may be refused, by a SQLSTATE about its values. Afterwards every key runs, once no lease is left, and the
commands for people can show the log.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from servers import Database, eventually
from servers.oncecron import Oncecron

from oncecron.core import clock
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Ending, Firing, Holder, Lease, Retention
from oncecron.core.tick import minute_tick
from oncecron.stores.postgres.lease_store import PostgresLeaseStore
from oncecron.stores.postgres.reader import PostgresReader

ABOUT_VALUES = ("22", "23", "54")
"""Classes of SQLSTATEs: data exceptions, integrity constraint violations, limits of the program."""
LONG = "x" * 10_000_000
STRANGE = "\x01\x1b[31m\r\n\t\u202e\x7f"
NUMBERS = ("Infinity", "-Infinity", "NaN", "1e300", "-1e300", "9e15", "-1")
WHOLE = (-1, 0, 2147483647)
TOKENS = (-1, 0, 9 * 10**18, 2**63 - 1, 2**53, 4 * 10**15)


class Session:
    """A connection of a role, which calls functions one by one."""

    def __init__(self, database: Database, role: str) -> None:
        self._connection = database.connect(role, autocommit=True)
        self.refused = 0

    def __call__(self, function: str, **arguments: Any) -> dict[str, Any] | None:
        """Call a function; return its row, or None if it refuses the values. Any other error fails the test."""
        places = ", ".join(f"{name} => %({name})s" for name in arguments)
        statement = f"select * from oncecron.{function}({places})"
        try:
            cursor = self._connection.execute(statement, arguments)  # type: ignore[arg-type]
        except psycopg.Error as error:
            if (error.sqlstate or "")[:2] not in ABOUT_VALUES:
                raise
            self.refused += 1
            return None
        names = [column.name for column in cursor.description or ()]
        row = cursor.fetchone()
        return dict(zip(names, row, strict=True)) if row else None

    def key_of(self, key: str) -> tuple[int, int]:
        """Register a key; return its id and its version."""
        self("register_v1", p_key=key, p_shard=0)
        row = self("look_v1", **looking(key))
        assert row is not None
        return row["key_id"], row["version"]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def runner(granted: Database) -> Iterator[Session]:
    """Connect as a role that may fire."""
    session = Session(granted, "runner")
    yield session
    session.close()


def looking(key: str) -> dict[str, Any]:
    common = {"p_key": key, "p_shard": 0, "p_host": "a", "p_owner": str(uuid.uuid4())}
    return {**common, "p_client_backend": 0, "p_ttl": 60}


def granting(key_id: int, version: int) -> dict[str, Any]:
    """Return the arguments of a grant, as a firing sends them."""
    return {
        "p_key_id": key_id,
        "p_version": version,
        "p_divisions": None,
        "p_tick": f"t{key_id}",
        "p_tick_instant": None,
        "p_attempt": 1,
        "p_cause": "schedule",
        "p_owner": str(uuid.uuid4()),
        "p_host": "a",
        "p_pid": 1,
        "p_user": "u",
        "p_command": "true",
        "p_fired_at": clock.wall(),
        "p_lateness": 1.0,
        "p_ttl": 60.0,
        "p_schedule": None,
        "p_zone": None,
        "p_starting_deadline": 60.0,
        "p_shards": 1,
        "p_retries": 0,
        "p_client_backend": 0,
        "p_backend_start": None,
        "p_alone": True,
        "p_full": 80,
        "p_before": None,
        "p_after": "version 1.0\nhour 490000\nwins 1\nskips 0",
    }


def adopting(key: str) -> dict[str, Any]:
    common = granting(0, 0)
    for name in (
        *("key_id", "version", "divisions", "lateness", "schedule", "zone", "starting_deadline"),
        *("alone", "full", "before", "after"),
    ):
        del common[f"p_{name}"]
    now = clock.wall()
    mine = {"p_key": key, "p_shard": 0, "p_tick": f"t-{key}", "p_started_at": now}
    return {**common, **mine, "p_fencing_token": int(now * 1e6)}


def record(key: str, kind: str = "execution") -> dict[str, Any]:
    """Return a record as a host spools it."""
    now = clock.wall()
    common = {"kind": kind, "key": key, "shard": 0, "tick": None, "tick_instant": None, "host": "a"}
    common |= {"pid": 1, "fired_at": now, "owner": str(uuid.uuid4())}
    if kind == "skip":
        return {**common, "reason": "no-store", "at": now, "count": 1, "detail": None}
    run = {"attempt": 1, "outcome": "succeeded", "exit_code": 0, "signal": None, "user": "u"}
    run |= {"command": "true", "started_at": now, "finished_at": now, "duration": 1.0}
    run |= {"fencing_token": None, "cause": "schedule", "note": None, "lost_reason": None}
    run |= {"request": None, "requested_by": None, "output": None, "output_cut": None}
    return {**common, **run, "shards": 1, "retries": 0}


def variants(arguments: dict[str, Any], texts: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the arguments with each of them made hostile in turn."""
    for name, value in arguments.items():
        hostile: tuple[Any, ...] = (None,)
        plain = name.removeprefix("p_")
        if plain in texts:
            hostile = (None, "", LONG, STRANGE, "'; drop schema oncecron cascade; --")
        elif plain in ("fencing_token", "output_cut", "count"):
            hostile = (None, *TOKENS)
        elif plain == "backend_start":
            hostile = ("infinity", "-infinity", "294276-01-01", "4713-01-01 BC")
        elif plain in ("attempt", "pid", "shards", "retries", "signal", "exit_code", "shard"):
            hostile = (None, *WHOLE)
        elif isinstance(value, float) or plain == "tick_instant":
            hostile = (None, *NUMBERS)
        for other in hostile:
            yield {**arguments, name: other}


TEXTS = (
    *("tick", "cause", "host", "user", "command", "schedule", "zone", "divisions", "note"),
    *(
        *("detail", "before", "presence", "reason", "outcome", "lost_reason", "request"),
        "requested_by",
    ),
    *("output", "holder_host"),
)


def assert_all_run(granted: Database, keys: list[str]) -> None:
    """Start and end every key at its present minute, when the leases that are left have expired."""
    granted.execute(
        "update oncecron.job_key set expires_at = clock_timestamp() - interval '1 s',"
        " heartbeat_at = clock_timestamp() - interval '1 s' - ttl where owner is not null"
    )
    for key in keys:
        store = PostgresLeaseStore(granted.url("runner"), namespace="oncecron", ttl=60)
        lease = eventually(lambda key=key, store=store: claimed(store, key))  # type: ignore[misc]
        ending = Ending("succeeded", 0, None, 1.0)
        assert store.finish(lease, ending, Retention(), deadline=deadline()), key
        store.close()


def claimed(store: PostgresLeaseStore, key: str) -> Lease | None:
    """Return the lease of the present minute; None while the lock of a session before is being freed."""
    now = clock.wall()
    firing = Firing(
        *(key, 0, minute_tick(now), str(uuid.uuid4()), Holder("honest", 1, "u"), "true", now),
        *(60.0, None, None),
        again=False,
        schedule=None,
        zone=None,
    )
    answer = store.claim(firing, deadline=deadline())
    why = getattr(answer, "why", None)
    assert isinstance(answer, Lease) or why in ("contended", "stale"), (key, answer)
    return answer if isinstance(answer, Lease) else None


def deadline() -> float:
    return clock.lease_time(clock.BOOTTIME) + 30


def assert_shown(granted: Database, path: Path, keys: list[str]) -> None:
    """Show everything with the commands for people."""
    owner = Oncecron(granted.url(), path)
    for words in (
        *[("history", "--limit", "0"), ("history", "--limit", "0", "--json"), ("jobs",)],
        *[("history", "--skips", "--limit", "0"), ("locks",), ("audit",)],
        *[("hosts",), ("hosts", "--json"), ("doctor",)],
        *[("why", key) for key in keys[::10]],
    ):
        ended = owner(*words)
        assert ended.status in (0, 1), (words, ended.err)
    people = PostgresReader(granted.url(), namespace="oncecron")
    assert all(row.command is not None for row in people.history(HistoryQuery(limit=None)))
    people.close()


@pytest.mark.turns(1, "hostile")
def test_grants_with_arguments_of_ones_own_making(
    granted: Database, runner: Session, public_path: Path
) -> None:
    """The lease of a grant ends within a day; what it writes on the key keeps no later tick from its start."""
    keys = []
    for number, changed in enumerate(variants(granting(0, 0), TEXTS)):
        keys.append(f"grant-{number}")
        key_id, version = runner.key_of(keys[-1])
        ids = {"p_key_id": key_id, "p_version": version}
        if changed["p_owner"] is None:
            ids["p_owner"] = None
        runner("grant_v1", **{**changed, **ids})
    assert runner.refused > 40
    leases = granted.execute(
        "select max(expires_at) < now() + interval '25 h' from oncecron.job_key"
    )
    assert leases == [(True,)]
    assert_all_run(granted, keys)
    assert_shown(granted, public_path, keys)


@pytest.mark.turns(1, "hostile")
def test_adoptions_with_arguments_of_ones_own_making(
    granted: Database, runner: Session, public_path: Path
) -> None:
    """A made-up lease ends like any other, and its token leaves room for the next ones."""
    keys = []
    for number, changed in enumerate(variants(adopting(""), TEXTS)):
        keys.append(f"adopt-{number}")
        keyed = {} if changed["p_key"] is None else {"p_key": keys[-1]}
        runner("adopt_v1", **{**changed, **keyed})
    assert runner.refused > 30
    assert_all_run(granted, keys)
    assert_shown(granted, public_path, keys)


@pytest.mark.turns(1, "hostile")
@pytest.mark.turns(1)
@pytest.mark.parametrize("kind", ["execution", "skip"])
@pytest.mark.parametrize("outcome", ["succeeded", "running", "not-started"])
def test_records_with_values_of_ones_own_making(
    granted: Database, runner: Session, public_path: Path, kind: str, outcome: str
) -> None:
    """Whatever is delivered, later ticks of its key start."""
    if kind == "skip" and outcome != "succeeded":
        pytest.skip("a skip has no outcome")
    keys = []
    for number, changed in enumerate(variants(record("", kind), TEXTS)):
        keys.append(f"record-{number}")
        keyed = {} if changed["key"] is None else {"key": keys[-1]}
        if kind == "execution" and changed["outcome"] == "succeeded":
            keyed["outcome"] = outcome
        text = json.dumps({**changed, **keyed})
        runner("deliver_v1", p=text, p_keep_executions=None, p_keep_skips=None)
    assert runner.refused > 10
    assert_all_run(granted, keys)
    assert_shown(granted, public_path, keys)


ENDS: dict[str, Callable[[], dict[str, Any]]] = {
    "keep_v1": lambda: {
        "p_outcome": "failed",
        "p_exit_code": 1,
        "p_signal": 1,
        "p_duration": 1.0,
        "p_note": "n",
        "p_output": "o",
        "p_output_cut": 0,
    },
    "finish_v1": lambda: {
        **ENDS["keep_v1"](),
        "p_lost_reason": None,
        "p_request": None,
        "p_requested_by": None,
        "p_keep_executions": None,
        "p_keep_skips": None,
    },
    "renew_v1": lambda: {
        "p_locked": False,
        "p_client_backend": 0,
        "p_backend_start": None,
        "p_listens": True,
    },
    "retry_v1": lambda: {"p_locked": False, "p_client_backend": 0, "p_backend_start": None},
}


@pytest.mark.turns(1)
@pytest.mark.parametrize("function", sorted(ENDS))
def test_a_lease_with_arguments_of_ones_own_making(
    granted: Database, runner: Session, public_path: Path, function: str
) -> None:
    """An end, a renewal or a retry of one's own execution."""
    keys = []
    for number, changed in enumerate(variants(ENDS[function](), TEXTS)):
        keys.append(f"lease-{number}")
        given = granting(*runner.key_of(keys[-1]))
        lease = runner("grant_v1", **given)
        assert lease is not None
        own = {"p_execution_id": lease["execution_id"], "p_owner": given["p_owner"]}
        if function == "retry_v1":
            runner("keep_v1", **own, **ENDS["keep_v1"]())
        runner(function, **own, **changed)
    assert_all_run(granted, keys)
    assert_shown(granted, public_path, keys)


def test_skips_with_arguments_of_ones_own_making(
    granted: Database, runner: Session, public_path: Path
) -> None:
    """They are only rows, and the row of an honest host takes one more."""
    now = clock.wall()
    skip = {
        "p_key": "k",
        "p_shard": 0,
        "p_tick": "t",
        "p_host": "a",
        "p_reason": "done",
        "p_pid": 1,
        "p_fired_at": now,
        "p_holder_host": "b",
        "p_holder_pid": 1,
        "p_detail": "d",
        "p_at": now,
        "p_count": 1,
        "p_delivered_of": str(uuid.uuid4()),
        "p_before": None,
        "p_after": None,
    }
    runner("register_v1", p_key="k", p_shard=0)
    for changed in variants(skip, TEXTS):
        runner("skip_v1", **changed)
    assert runner.refused > 10
    for times, at in enumerate(("Infinity", "NaN", "1e300", "9e15"), runner.refused + 1):
        runner("skip_v1", **{**skip, "p_at": at})
        assert runner.refused == times, f"{at} is taken for a time"
    refused = runner.refused
    runner("skip_v1", **{**skip, "p_delivered_of": str(uuid.uuid4())})
    assert runner.refused == refused
    assert_all_run(granted, ["k"])
    assert_shown(granted, public_path, ["k"])


def test_hosts_with_what_they_make_up_of_themselves(
    granted: Database, runner: Session, public_path: Path
) -> None:
    """It has an end, is shown or named, and keeps no honest firing of the host from its start."""
    key_id, _ = runner.key_of("k")
    told = {"p_key_id": key_id, "p_host": "honest", "p_after": "x"}
    packed = {"p_plain_from": 28_000_000 & -2048, "p_plain": 1 << 19}
    for changed in variants({**told, **packed}, TEXTS):
        runner("see_first_v1", **changed)
        runner("see_again_v1", **changed, p_before="x")
    texts = ("x" * 14_000, *(f"{name} {'9 ' * 6000}" for name in ("ticks", "wins", "hour")))
    for text in ("x\n\n", "ticks a\nticks_at NaN", *texts):
        granted.execute("delete from oncecron.key_host")
        none = {"p_plain_from": None, "p_plain": None}
        assert runner("see_first_v1", **{**told, **none, "p_after": text})
        assert_shown(granted, public_path, ["k"])
        assert_all_run(granted, ["k"])
        granted.execute(
            "update oncecron.job_key set high_water = null, seen_until = null, newest_id = null"
        )
        granted.execute("truncate oncecron.job_execution cascade")
    refused = runner.refused
    for name, value in (
        *[("plain_from", -1), ("plain_from", 2**31 - 1)],
        *[("plain", -1), ("after", LONG), ("host", LONG)],
    ):
        granted.execute("delete from oncecron.key_host")
        runner("see_first_v1", **{**told, **packed, f"p_{name}": value})
        refused += 1
        assert runner.refused == refused, (name, value)


def test_notices_with_arguments_of_ones_own_making(
    granted: Database, runner: Session, public_path: Path
) -> None:
    """They can cause a message too many, and keep no pass from sending."""
    notice = {"p_channel": "ops", "p_version": 0, "p_document": "{}"}
    for changed in variants(notice, ("channel", "document")):
        runner("put_notice_v1", **changed)
    for version in (*WHOLE, *TOKENS):
        runner("put_notice_v1", **{**notice, "p_version": version})
    assert runner.refused >= 4
    file = public_path / "notify.toml"
    file.write_text('[notify.channel.ops]\ncommand = "cat >&2; exit 3"\n')
    owner = Oncecron(granted.url(), public_path, ONCECRON_CONFIG=str(file))
    assert owner.run("billing", "--tick", "t", "--", "false").status == 1
    ended = owner("notify", "--now")
    assert "oncecron CRITICAL: billing failed" in ended.err
    assert owner("check").status == 2


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("key", "shard"),
    [
        *[(key, 0) for key in ("", LONG, STRANGE, "a b", "a#0", "*", "x" * 201, "k\n")],
        *[("k", shard) for shard in (-1, 1000, 2147483647)],
    ],
    ids=lambda value: f"{value!r:.12}",
)
def test_a_key_that_cannot_be_is_not_registered(
    granted: Database, runner: Session, key: str, shard: int
) -> None:
    """Neither by a claim nor by a listener or a record."""
    runner("register_v1", p_key=key, p_shard=shard)
    owner = str(uuid.uuid4())
    pid = runner._connection.info.backend_pid
    listening = {"p_owner": owner, "p_awaited": None, "p_client_backend": pid}
    runner("listen_v1", p_key=key, p_shard=shard, **listening)
    runner("adopt_v1", **{**adopting(key), "p_shard": shard})
    text = json.dumps({**record(key), "shard": shard})
    runner("deliver_v1", p=text, p_keep_executions=None, p_keep_skips=None)
    assert runner.refused == 4
    assert granted.execute("select key from oncecron.job_key") == []


def test_a_look_with_arguments_of_ones_own_making(granted: Database, runner: Session) -> None:
    """It writes nothing, and the session can go on."""
    runner("register_v1", p_key="k", p_shard=0)
    for changed in variants({**looking("k"), "p_ttl": 60.0}, ("key", "host")):
        runner("look_v1", **changed)
    asked = {"p_key_id": 1, "p_owner": None, "p_tick": "t", "p_shards": 1, "p_awaited": 1}
    for changed in variants({**asked, "p_client_backend": 0}, TEXTS):
        runner("look_at_log_v1", **changed)
        del changed["p_owner"], changed["p_awaited"]
        runner("look_at_tick_v1", **changed)
    back = {"p_key": "k", "p_shard": 0, "p_since": 1.0, "p_tick_since": "t"}
    for changed in variants(back, ("key", "tick_since")):
        runner("look_back_v1", **changed)
    assert_all_run(granted, ["k"])


def test_a_note_of_another_role_does_not_keep_an_end_from_the_log(
    granted: Database, runner: Session
) -> None:
    """Whoever finds a lease expired may write a note; what really happened is recorded after it."""
    given = granting(*runner.key_of("k"))
    lease = runner("grant_v1", **given)
    assert lease is not None
    granted.execute("update oncecron.job_key set expires_at = now() - interval '1 s'")
    row = runner("look_v1", **looking("k"))
    assert row is not None
    note = "n" * 1_048_576
    runner("expire_v1", p_key_id=row["key_id"], p_version=row["version"], p_note=note)
    own = {"p_execution_id": lease["execution_id"], "p_owner": given["p_owner"]}
    runner("finish_v1", **own, **ENDS["finish_v1"]())
    assert granted.execute("select outcome from oncecron.executions") == [("failed",)]


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "arguments",
    [
        *[{"p_seconds": seconds} for seconds in NUMBERS],
        {"p_seconds": 4e9},
        {"p_reason": LONG},
        {"p_author": LONG},
        {"p_key": LONG},
        {"p_author": None},
    ],
    ids=lambda arguments: f"{arguments!r:.30}",
)
def test_a_pause_with_arguments_of_ones_own_making(
    granted: Database, public_path: Path, arguments: dict[str, Any]
) -> None:
    """It can be shown, and ended, or it is refused."""
    operator = Session(granted, "operator")
    given = {"p_key": "k", "p_author": "a", "p_reason": None, "p_seconds": None}
    operator("pause_v1", **{**given, **arguments})
    operator.close()
    owner = Oncecron(granted.url(), public_path)
    assert owner("locks", "--pauses", "--json").status == 0
    owner("resume", "k")
    assert_all_run(granted, ["k"])


@pytest.mark.turns(1)
@pytest.mark.parametrize("host", ["", LONG, STRANGE])
def test_a_drain_of_a_host_of_ones_own_making(
    granted: Database, public_path: Path, host: str
) -> None:
    """It can be shown, or it is refused."""
    operator = Session(granted, "operator")
    operator("drain_v1", p_host=host, p_author="a", p_reason=None, p_seconds=None)
    operator.close()
    owner = Oncecron(granted.url(), public_path)
    assert owner("locks", "--pauses", "--json").status == 0
