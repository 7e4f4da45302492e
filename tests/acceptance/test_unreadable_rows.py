"""One bad row hides itself alone: each command names it, leaves it out, prints all others, and exits with 1.

The rows are written past the constraints of a store, as a restore, another program or an older release may write them.
"""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NoReturn

import pytest
from log_of import PostgresLog, RedisLog, SQLiteLog, Store
from servers.oncecron import Ended, Oncecron
from story_stores import rotated, seed, wanted

WITHOUT_CONSTRAINTS = """
do $$ declare c record; begin
  for c in select conname, conrelid::regclass as of_table, conrelid <> 0 as in_table, contypid::regtype as of_domain
             from pg_constraint where contype = 'c' and connamespace = 'oncecron'::regnamespace loop
    if c.in_table then execute format('alter table %s drop constraint %I', c.of_table, c.conname);
    else execute format('alter domain %s drop constraint %I', c.of_domain, c.conname); end if;
  end loop;
end $$
"""
SAVE = """
create schema saved;
create table saved.job_key as table oncecron.job_key;
create table saved.job_execution as table oncecron.job_execution;
create table saved.skip as table oncecron.skip;
create table saved.pause as table oncecron.pause;
create table saved.key_host as table oncecron.key_host
"""
RESTORE = """
update oncecron.job_key k set heartbeat_at = s.heartbeat_at, acquired_at = s.acquired_at, ttl = s.ttl,
       high_water = s.high_water, expected_since = s.expected_since, fence = s.fence
  from saved.job_key s where s.key_id = k.key_id;
delete from oncecron.job_execution;
insert into oncecron.job_execution overriding system value table saved.job_execution;
delete from oncecron.skip;
insert into oncecron.skip table saved.skip;
delete from oncecron.pause;
insert into oncecron.pause table saved.pause;
delete from oncecron.key_host;
insert into oncecron.key_host table saved.key_host;
drop schema saved cascade
"""
PREFIX = "oncecron:{oncecron}:"
TICK = "where tick = 'two'"
HOST = "presence = replace(presence, '%s', '%s')"
OF_K = "from oncecron.job_key k where k.key_id = h.key_id and k.key = 'k'"

POSTGRES = {
    "a start that never comes": f"update oncecron.job_execution set started_at = 'infinity' {TICK}",
    "a start before all time": f"update oncecron.job_execution set started_at = '-infinity' {TICK}",
    "the year 12000": f"update oncecron.job_execution set started_at = '12000-01-01Z' {TICK}",
    "an end that never comes": f"update oncecron.job_execution set finished_at = 'infinity' {TICK}",
    "an endless duration": f"update oncecron.job_execution set duration = 'infinity' {TICK}",
    "no number": f"update oncecron.job_execution set duration = 'nan' {TICK}",
    "a word of nobody": f"update oncecron.job_execution set outcome = 'exploded' {TICK}",
    "too many shards": f"update oncecron.job_execution set shards = 2000000000 {TICK}",
    "a tick that never comes": f"update oncecron.job_execution set tick_at = 'infinity' {TICK}",
    "a firing that never comes": f"update oncecron.job_execution set fired_at = 'infinity' {TICK}",
    "a loss that never comes": f"update oncecron.job_execution set lost_at = '-infinity' {TICK}",
    "a skip that never comes": "update oncecron.skip set at = 'infinity' where tick = 'two'",
    "an endless pause": "update oncecron.pause set created_at = 'infinity', until = 'infinity'",
    "an endless mark": "update oncecron.job_key set high_water = 'infinity' where key = 'other'",
    "an endless expectation": "update oncecron.job_key set expected_since = 'infinity' where key = 'other'",
    "an endless heartbeat": "update oncecron.job_key set heartbeat_at = 'infinity' where key = 'held'",
    "an endless ttl": "update oncecron.job_key set ttl = '178000000 y', acquired_at = '-infinity' where key = 'held'",
    "a host that is never seen": f"update oncecron.key_host h set seen_at = 'infinity' {OF_K}",
    "a host without a clock": f"update oncecron.key_host h set {HOST % ('clock_ahead ', 'clock_ahead nan')} {OF_K}",
    "a host whose ticks never come": f"update oncecron.key_host h set {HOST % ('ticks_at ', 'ticks_at inf')} {OF_K}",
    "a host with ticks without times": f"update oncecron.key_host h set {HOST % ('ticks_at ', 'nothing ')} {OF_K}",
    "a token that cannot rise": "update oncecron.job_key set fence = 9223372036854775807 where key = 'k'",
    "a token of another world": f"update oncecron.job_execution set fencing_token = 9223372036854775807 {TICK}",
    "a duration before all time": f"update oncecron.job_execution set duration = -1e300 {TICK}",
    "the last attempt": f"update oncecron.job_execution set attempt = 2147483647 {TICK}",
    "the last count": "update oncecron.skip set count = 2147483647 where tick = 'two'",
}
SQLITE = {
    "a start that never comes": f"update job_execution set started_at = 9e999 {TICK}",
    "the year 12000": f"update job_execution set started_at = 4e11 {TICK}",
    "a text for a number": f"update job_execution set started_at = 'yesterday' {TICK}",
    "bytes for a text": f"update job_execution set host = x'ff00' {TICK}",
    "a word of nobody": f"update job_execution set outcome = 'exploded' {TICK}",
    "too many shards": f"update job_execution set shards = 9000000000 {TICK}",
    "a skip with a text for a number": "update skip set at = 'never' where tick = 'two'",
    "a skip that never comes": "update skip set at = 9e999 where tick = 'two'",
    "an endless pause": "update pause set at = 9e999, until = 9e999",
    "an endless lease": "update lease set heartbeat_at = 9e999 where key = 'held'",
    "a lease of bytes": "update lease set acquired_at = x'ff' where key = 'held'",
    "bytes for a schedule": "update job_key set schedule = x'ff' where key = 'other'",
    "a host that is never seen": "update key_host set seen_at = 9e999 where key = 'k'",
    "a host with a text for a count": f"update key_host set {HOST % ('wins ', 'wins many')} where key = 'k'",
    "a host of bytes": "update key_host set presence = x'ff' where key = 'k'",
    "a host with ticks without times": f"update key_host set {HOST % ('ticks_at ', 'nothing ')} where key = 'k'",
    "a token that cannot rise": "update job_key set fence = 9223372036854775807 where key = 'k'",
    "a token of another world": f"update job_execution set fencing_token = 9223372036854775807 {TICK}",
    "a duration before all time": f"update job_execution set duration = -1e300 {TICK}",
    "the last attempt": f"update job_execution set attempt = 9223372036854775807 {TICK}",
    "a text with NUL": f"update job_execution set command = 'a' || char(0) || 'b', note = char(0) {TICK}",
    "half a letter": f"update job_execution set user = cast(x'eda080' as text) {TICK}",
    "the last count": "update skip set count = 9223372036854775807 where tick = 'two'",
    "a mark that is no time": "update job_key set high_water = 1e300, last_start = -1e300 where key = 'other'",
}
REDIS: dict[str, tuple[str, dict[str, Any] | tuple[str, str] | str]] = {
    "no JSON": ("execution", "{"),
    "JSON of something else": ("execution", "[1]"),
    "deep JSON": ("execution", "[" * 100_000),
    "an execution without a host": ("execution", {"host": None}),
    "an execution without an outcome": ("execution", {"outcome": None}),
    "a start that never comes": ("execution", {"started_at": "inf"}),
    "the year 12000": ("execution", {"started_at": "400000000000"}),
    "no number": ("execution", {"duration": "nan"}),
    "a text for a number": ("execution", {"pid": "x"}),
    "a word of nobody": ("execution", {"outcome": "exploded"}),
    "too many shards": ("execution", {"shards": "2000000000"}),
    "a skip without JSON": ("skip", "no JSON"),
    "a skip without a count": ("skip", {"count": None}),
    "a pause without JSON": ("pause", "{"),
    "an endless pause": ("pause", {"at": "inf"}),
    "a key without a number": ("key", {"high_water": "x"}),
    "an endless key": ("key", {"expected_since": "inf"}),
    "a lease without a number": ("lease", {"heartbeat_at": "x"}),
    "a lease without its time": ("lease", {"expires_at": None}),
    "a shard without a number": ("shard", ""),
    "a host of nothing": ("host", "{"),
    "a host without an hour": ("host", ("hour ", "nothing ")),
    "a host that is never seen": ("host", ("1", "inf")),
    "a host with ticks without times": ("host", ("ticks_at ", "ticks_at x")),
    "a token that cannot rise": ("key", {"fence": "9223372036854775807"}),
    "a token without end": ("key", {"fence": "1e400"}),
    "a mark that is no time": ("key", {"high_water": "nan", "last_start": "1e300"}),
    "a lease that is no time": ("lease", {"expires_at": "nan"}),
    "a number of many digits": ("execution", {"pid": "9" * 5000}),
    "a number beyond all": ("execution", {"attempt": "9" * 30}),
    "a list for a number": ("execution", {"started_at": [1]}),
    "a number for a text": ("execution", {"host": 7}),
    "a duration before all time": ("execution", {"duration": "-1e300"}),
    "half a letter": ("execution", {"user": "\ud800", "note": "\0"}),
    "JSON that is a number": ("execution", "7"),
    "a skip that is a list": ("skip", "[]"),
    "a pause of nobody": ("pause", {"author": 7, "at": None}),
    "a host with a list for a count": ("host", ("wins ", "wins [1]")),
}


UNNAMED = {
    *("a token that cannot rise", "a token without end", "a token of another world"),
    *("the last attempt", "the last count", "a text with NUL", "half a letter"),
}
"""What only a claim reads, and what is shown as it is."""


@pytest.fixture
def damages(store: Store) -> dict[str, Any]:
    """Give what can be wrong with a row of the store: the next few with the next seed, all in the long form."""
    every = REDIS
    if isinstance(store, PostgresLog | SQLiteLog):
        every = POSTGRES if isinstance(store, PostgresLog) else SQLITE
    count = len(every) if wanted() == "all" else 4
    return {name: every[name] for name in rotated(every, count * seed(), count)}


def damage(store: Store, what: Any) -> None:
    if isinstance(store, PostgresLog):
        store._database.execute(WITHOUT_CONSTRAINTS)
        store._database.execute(what)
    elif isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(store._path)) as database, database:
            database.execute("pragma ignore_check_constraints = on")
            assert database.execute(what).rowcount
    else:
        assert isinstance(store, RedisLog)
        damage_redis(store._client, *what)


def damage_redis(client: Any, kind: str, change: dict[str, Any] | tuple[str, str] | str) -> None:
    """Damage a field of a hash, which is JSON except for a lease."""
    if kind == "shard":
        client.zadd(PREFIX + "parts", {"strange": 1})
        return
    if kind in ("lease", "key"):
        name = PREFIX + {"lease": "lease:held#0", "key": "key:other#0"}[kind]
        for field, value in change.items():
            client.hdel(name, field) if value is None else client.hset(name, field, value)
        return
    names = {
        "execution": "executions",
        "skip": "skip_rows:k#0",
        "pause": "pauses",
        "host": "hosts:k#0",
    }
    name = PREFIX + names[kind]
    [field] = [
        field
        for field, text in client.hgetall(name).items()
        if kind in ("pause", "host") or '"two"' in (text if kind == "execution" else field)
    ]
    if isinstance(change, tuple):
        change = client.hget(name, field).replace(*change)
    if isinstance(change, dict):
        row = json.loads(client.hget(name, field)) | change
        change = json.dumps({name: value for name, value in row.items() if value is not None})
    client.hset(name, field, change)


def no_constant(name: str) -> NoReturn:
    """Refuse `NaN` and `Infinity`, which are no JSON."""
    raise AssertionError(name)


HISTORY = ("--json", "--format csv", "k", "", "k --tick two --json", "--since 1h --json")
HISTORY += ("--exhausted --json", "--skips --json", "--skips")
COMMANDS = [
    tuple(f"{command} {words}".split())
    for command, given in (
        ("history", HISTORY),
        ("jobs", ("", "--json")),
        ("locks", ("", "--json", "--pauses --json")),
        ("why", ("k", "k --json", "k --tick two", "k --tick two --json", "held", "other")),
        ("audit", ("", "--json")),
        ("next", ("other",)),
        ("check", ("", "--json")),
        ("hosts", ("", "--json")),
        ("timeline", ("", "--json", "k", "k --json")),
    )
    for words in given
]


@pytest.mark.own_log  # its two stores are tested by themselves
def test_a_bad_row_hides_itself_alone(
    store: Store, host: Oncecron, damages: dict[str, Any]
) -> None:
    """Whatever is wrong with it, whichever command meets it; JSON stays JSON."""
    for tick in ("one", "two", "three"):
        assert host.run("k", "--tick", tick, "--", "true").status == 0
        assert host.run("k", "--tick", tick, "--", "true").status == 0
    assert host.run("other", "--schedule", "* * * * *", "--", "true").status == 0
    assert host("pause", "other", "--store", store.operator_url).status == 0
    held = host.fire("held", "--ttl", "1h", "--tick", "x", "--", "sleep", "600")
    held.job()
    unnamed = []
    for name, what in damages.items():
        with undone(store):
            damage(store, what)
            errors = [assert_readable(name, command, host(*command)) for command in COMMANDS]
            for key in ("k", "held", "other"):
                fired = host.run(key, "--tick", "four", "--connect-timeout", "2s", "--", "true")
                assert fired.status in (0, 69, 78), (name, key, fired)
                assert fired.err.count("\n") <= 1, (name, key, fired)
        if not any("cannot be read and is left out: " in err for err in errors):
            unnamed.append(name)
    held.process.terminate()
    held.wait()
    assert set(unnamed) <= UNNAMED


def assert_readable(name: str, command: tuple[str, ...], ended: Ended) -> str:
    """Check one answer; return its errors."""
    context = (name, command, ended)
    lines = ended.err.splitlines()
    if command[0] == "check":
        assert ended.status in (1, 2, 3 if "left out" in ended.err else 0), context
        return ended.err
    assert ended.status in (0, 1), context
    assert len(set(lines)) == len(lines), context
    if "left out" in ended.err and command[0] != "next":
        assert ended.status == 1, context
    text = ended.out.decode()
    if "--json" in command and text:
        answer = json.loads(text, parse_constant=no_constant)
        if command == ("history", "--json"):
            assert {"one", "three", "x"} <= {each["tick"] for each in answer}, context
    if command == ("history",):
        assert {"one", "three"} <= set(text.split()), context
    return ended.err


@contextmanager
def undone(store: Store) -> Iterator[None]:
    """Put back afterwards what the store has now."""
    if isinstance(store, PostgresLog):
        store._database.execute(SAVE)
        yield
        store._database.execute(RESTORE)
    elif isinstance(store, SQLiteLog):
        with closing(sqlite3.connect(":memory:")) as before:
            with closing(sqlite3.connect(store._path)) as database:
                database.backup(before)
            yield
            with closing(sqlite3.connect(store._path)) as database:
                before.backup(database)
    else:
        assert isinstance(store, RedisLog)
        dumped = {name: store._client.dump(name) for name in store._client.keys("*")}
        yield
        for name, value in dumped.items():
            store._client.restore(name, 0, value, replace=True)


def test_the_id_of_a_bad_row_is_not_unknown(any_store: Store, host: Oncecron) -> None:
    """It is on record: the line says what is wrong with it, and nothing else."""
    assert host.run("k", "--tick", "two", "--", "true").status == 0
    damage(any_store, SQLITE["a start that never comes"])
    reason = "execution 1 cannot be read and is left out: started_at is inf"
    assert host("history", "--id", 1) == (1, b"", f"oncecron: {reason}\n")


def test_many_bad_rows_are_named_in_part(any_store: Store, host: Oncecron) -> None:
    """A million of them would hide everything else."""
    assert host.run("k", "--tick", "two", "--", "true").status == 0
    damage(
        any_store,
        "with recursive n (i) as (select 2 union all select i + 1 from n where i < 100)"
        " insert into job_execution (key, shard, tick, named, attempt, owner_attempt, outcome, cause, host, pid,"
        " user, command, started_at, owner) select 'k', 0, 'x' || i, 1, 1, 1, 'succeeded', 'schedule', 'h', 1,"
        " 'u', 'c', 9e999, 'o' || i from n",
    )
    status, out, err = host("history", "--json", "--limit", "1")
    assert (status, [each["tick"] for each in json.loads(out)]) == (1, ["two"])
    *named, last = err.splitlines()
    assert (len(named), last) == (10, "oncecron: more rows cannot be read and are left out")


def test_following_passes_a_bad_row_by(any_store: Store, host: Oncecron) -> None:
    """It is named once, old executions are not shown again, and the next one is shown."""
    assert host.run("k", "--tick", "one", "--", "true").status == 0
    assert host.run("k", "--tick", "two", "--", "true").status == 0
    damage(any_store, SQLITE["a start that never comes"])
    following = host.start("history", "--follow", "--format", "ndjson")
    assert following.process.stdout
    assert json.loads(following.process.stdout.readline())["tick"] == "one"
    assert host.run("k", "--tick", "three", "--", "true").status == 0
    assert json.loads(following.process.stdout.readline())["tick"] == "three"
    following.process.send_signal(signal.SIGINT)
    status, out, err = following.wait()
    assert (status, out, err.count("cannot be read")) == (130, b"", 1)
