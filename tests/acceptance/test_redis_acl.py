"""The user that the manual creates on Redis: it may do all that oncecron does, and nothing else."""

import itertools
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.exceptions import ResponseError
from servers import Journal, RedisServer, job
from servers.oncecron import Ended, Oncecron

from oncecron.stores.redis.explain import acl_rule

PASSWORD = "s3cret"
RULE = acl_rule("oncecron", "oncecron", login=f"on >{PASSWORD}")
RIGHTS = {word[1:] for word in RULE if word.startswith("+")}
ELSEWHERE = {"asking", "command", "cluster|slots", "wait"}
"""What only a cluster and `?wait=N` need."""
OF_EVERYBODY = {"auth", "hello"}
"""What a server asks no right for."""


@pytest.fixture
def server(new_redis: Callable[..., RedisServer]) -> RedisServer:
    """Start a server that has counted nothing yet, with the user."""
    server = new_redis(aof=True)
    admin = server.connect()
    admin.execute_command(*RULE)
    admin.set("orders:1", "another program's")
    return server


@pytest.fixture
def host(server: RedisServer, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host which logs in as that user."""
    url = server.url(login=f"oncecron:{PASSWORD}")
    return lambda name="host-a": Oncecron(url, public_path, name)


def test_it_may_do_all_that_oncecron_does_and_needs_every_right(
    server: RedisServer, host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """Every command works, the server has refused nothing, and no right was left unused."""
    admin = server.connect()
    admin.config_resetstat()
    a, b = host(), host("host-b")
    b.environment["ONCECRON_CONFIG"] = str(public_path / "notify.toml")
    (public_path / "notify.toml").write_text('[notify.channel.log]\ncommand = "true"\n')
    (public_path / "notify.toml").chmod(0o600)
    ticks = (f"t{number}" for number in itertools.count())

    def run(host: Oncecron, *words: str) -> Ended:
        return host.run("k", "--tick", next(ticks), *words)

    assert run(a, "--", "true").status == 0
    assert a.run("k", "--tick", "t0", "--", "true").status == 0
    assert run(a, "--capture", "1k", "--", "echo", "hello").status == 0
    assert run(a, "--retries", "1", "--retry-delay", "0s", "--", "false").status == 1
    assert a.run("k", "--tick", "parts", "--shards", "2", "--", "true").status == 0
    assert a.run("k", "--no-tick", "--failover", "--", "true").status == 0
    assert (
        a("each", "--key", "e", "--tick", "t", "--items", "seq 3", "--", "false", stdin=-3).status
        == 1
    )
    firing = a.fire("k", "--tick", next(ticks), "--", *job(journal, "--sleep", 300))
    journal.wait_for("start")
    waiting = b.fire("k", "--tick", next(ticks), "--wait", "300s", "--", "true")
    for command in (
        *("init --keep-executions 0s --keep-skips 0s", "locks --json", "jobs", "hosts", "why k"),
        *("audit", "flush", "next k"),
        *("history", "history k --tick t0", "history --id 1", "history --exhausted"),
        *("history --skips", "history k --since 1h", "history --outcome failed"),
        *("pause k", "resume k", "pause --all", "resume --all", "drain web9 --new", "undrain web9"),
        *("forget k", "forget --host host-a", "check", "notify --now"),
        *("items", "items e", "items e --item 1 --state dead --done"),
        "items e --state lost,dead --retry",
        *("stop k --signal KILL", "release k"),
    ):
        ended = b(*shlex.split(command))
        assert "NOPERM" not in ended.err, (command, ended)
        assert ended.status in (0, 1, 2, *[66] * (command == "next k")), (command, ended)
    firing.wait()
    assert waiting.wait().status in (0, 143)  # where its command still ran, it was released
    other_database = server.url(login=f"oncecron:{PASSWORD}", database=1)
    assert run(a, "--store", other_database, "--", "true").status == 0
    assert b("prune", "--executions", "0s", "--skips", "0s").status == 0
    assert admin.acl_log() == []
    used = {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}
    used -= {name for name in used if name.split("|")[0] in ("acl", "config", "command")}
    if "client" in used:  # 6.2 counts no subcommands
        used = used - {"client"} | {"client|setname"}
    assert used - RIGHTS == OF_EVERYBODY
    assert RIGHTS - used == ELSEWHERE


def test_a_reader_has_the_rights_that_the_manual_names(
    server: RedisServer, host: Callable[..., Oncecron], public_path: Path
) -> None:
    """It reads all that there is, and starts no job."""
    manual = (Path(__file__).parents[2] / "docs/stores/redis.md").read_text()
    [rights] = re.findall(r"needs `(\+time [^`]+)`", manual)
    reader = f"ACL SETUSER reader on >{PASSWORD} ~oncecron:* +select +client|setname {rights}"
    server.connect().execute_command(*reader.split())
    assert host().run("k", "--tick", "t", "--", "true").status == 0
    reads = Oncecron(server.url(login=f"reader:{PASSWORD}"), public_path, "host-b")
    listed = ("--tick", "t", "--items", "seq 3", "--", "true")
    assert host()("each", "--key", "e", *listed, stdin=-3).status == 0
    for command in (
        *("history", "history --skips", "locks", "jobs", "hosts", "why k", "audit"),
        *("timeline", "timeline k"),
        *("items", "items e"),
    ):
        ended = reads(*command.split())
        assert (ended.status, ended.err) == (0, ""), (command, ended)
    refused = reads.run("k", "--tick", "t2", "--", "true")
    assert refused.status == 78
    assert "ACL SETUSER reader '~oncecron:*' " in refused.err


@pytest.mark.turns(8)
@pytest.mark.parametrize(
    "command",
    [
        *("FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE"),
        *("CONFIG GET *", "CONFIG SET dir /tmp", "SHUTDOWN", "SAVE", "BGREWRITEAOF"),
        *("SCRIPT FLUSH", "SCRIPT KILL", "FUNCTION FLUSH", "MODULE LIST", "ACL WHOAMI", "MONITOR"),
        *("CLIENT LIST", "CLIENT KILL ID 1", "REPLICAOF no one", "FAILOVER", "MIGRATE h 1 k 0 1"),
        *("RENAME oncecron:a oncecron:b", "OBJECT ENCODING orders:1", "MEMORY USAGE orders:1"),
        *(
            "HGET orders:1 f",
            "DEL orders:1",
            "SUBSCRIBE orders",
            "PUBLISH orders x",
            "SET oncecron:x y",
        ),
    ],
)
def test_it_may_do_nothing_else(server: RedisServer, command: str) -> None:
    """Neither by itself nor in a script; what belongs to other programs is not touched."""
    user = server.connect(username="oncecron", password=PASSWORD)
    words = command.split()
    with pytest.raises(ResponseError, match=r"permission|can't access|unknown command"):
        user.execute_command(*words)
    quoted = ",".join(f"'{word}'" for word in words)
    with pytest.raises(
        ResponseError, match=r"not allowed|ACL failure|permission|can't|Unknown Redis command"
    ):
        user.eval(f"return redis.call({quoted})", 0)
    assert server.connect().get("orders:1") == b"another program's"
