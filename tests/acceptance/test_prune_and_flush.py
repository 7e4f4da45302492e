"""What people look after, by the installed console script: prune and flush."""

import fcntl
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from answers import answer, refused
from log_of import Store
from servers import Database, FaultProxy, PostgresServer
from servers.oncecron import Ended, Oncecron

from oncecron.run.spool import Spool

KEEP_NOTHING = ("--keep-executions", "0s", "--keep-skips", "0s")

# prune


@pytest.mark.own_log
def test_prune_takes_its_ages_from_the_file(
    past: Oncecron, store: Store, public_path: Path
) -> None:
    """`[retention]`, unless an option says otherwise; on every store."""
    path = public_path / "oncecron.toml"
    path.write_text('[retention]\nexecutions = "1h"\nskips = "0s"\n')
    assert past("init", *KEEP_NOTHING, "--store", store.owner_url).status == 0
    time.sleep(0.01)  # older than nothing at all
    words = ("prune", "--config", path, "--store", store.owner_url)
    assert past(*words, "--dry-run").out == b"would remove 0 executions and 1 skip\n"
    ended = past(*words)
    assert ended == Ended(0, b"removed 0 executions and 1 skip\n", "")
    assert answer(past, "history", "--skips") == []
    assert len(answer(past, "history")) == 3


@pytest.mark.own_log
def test_prune_keeps_what_its_owner_wants_to_keep(past: Oncecron, store: Store) -> None:
    """It says so, with the command that changes it, which may be pasted."""
    where = ("--store", store.owner_url)
    told = past("init", *where).out
    assert told.endswith(b"; keeps executions at least 7d, skips at least 1d\n")
    wanted = ("--executions", "90m", "--skips", "0s", *where)
    kept = past("prune", *wanted)
    assert (kept.status, kept.out) == (0, b"removed 0 executions and 0 skips\n")
    said, _, command = kept.err.partition("; to remove younger ones, have its owner run `oncecron ")
    assert said == "oncecron: the store keeps executions at least 7d and skips at least 1d"
    assert past(*shlex.split(command.removesuffix("`\n"))[:5], *where).status == 0
    time.sleep(0.01)  # older than nothing at all
    assert past("prune", *wanted) == Ended(0, b"removed 0 executions and 1 skip\n", "")
    assert past("prune", "--executions", "89m", *where).err.startswith(
        "oncecron: the store keeps executions at least 90m; to remove younger ones, "
    )
    assert len(answer(past, "history")) == 3


# flush


def test_flush_delivers_what_the_store_has_not_got(
    database: Database, public_path: Path, new_proxy: Callable[[PostgresServer], FaultProxy]
) -> None:
    """Prints it, keeps what fails (69), sets aside what is no record, and is silent about nothing."""
    proxy = new_proxy(database.server)
    host = Oncecron(database.url(via=proxy), public_path)
    assert host("flush") == Ended(0, b"", "")
    proxy.refuse()
    for key in ("a", "b"):
        host.run(key, "--tick", "t1", "--connect-timeout", "1s", "--", "true")
    refused(host("flush"), 69, "2 records stay in ")
    proxy.passing()
    [spool] = (public_path / "host-a" / "oncecron" / "spool").iterdir()
    (spool / "a" / "x.json").write_text("{")
    with (spool / "a" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        delivered = host("flush")
        assert (delivered.status, delivered.out) == (75, b"delivered b t1 no-store\n")
        assert (
            delivered.err
            == f"oncecron: another process is delivering records of {spool}; retry later\n"
        )
    delivered = host("flush")
    assert (delivered.status, delivered.out) == (65, b"delivered a t1 no-store\n")
    assert delivered.err == (
        f"oncecron: unreadable record set aside: {spool}/a/x.json.broken; look at it, then delete it\n"
    )
    assert [each["reason"] for each in answer(host, "history", "--skips")] == ["no-store"] * 2
    (spool / "a" / "x.json.broken").unlink()
    assert host("flush") == Ended(0, b"", "")


def test_what_others_may_have_spooled_is_not_delivered(
    any_store: Store, host: Oncecron, public_path: Path
) -> None:
    """A record that says that the tick is done: the firing runs all the same and says nothing, `flush` the cure."""
    from oncecron.core.model import Ending, Firing, Holder
    from oncecron.core.tick import named_tick
    from oncecron.run.spool import execution_record

    host.run("k", "--tick", "before", "--", "true")
    forged = Firing(
        *("k", 0, named_tick("t1"), "owner-1", Holder("evil", 1, "u"), "true", 1.5, 60.0),
        *(None, None, False, None, None),
    )
    spool_of(any_store, public_path).add(
        execution_record(forged, None, Ending("succeeded", 0, None, 1.0))
    )
    (public_path / "host-a" / "oncecron").chmod(0o777)
    assert host.run("k", "--tick", "t1", "--", "echo", "ran") == Ended(0, b"ran\n", "")
    told = "check what is in it, then make it yours: `chown "
    refused(host("flush"), 78, str(public_path / "host-a" / "oncecron"), told)
    assert {each["host"] for each in answer(host, "history", "k")} == {"host-a"}
    assert b"spooled" not in host("why", "k", "--tick", "t1").out


def spool_of(store: Store, public_path: Path) -> Spool:
    """Return what host-a has not told a store."""
    from oncecron.stores.address import parse_address

    target = parse_address(store.url).target
    return Spool(str(public_path / "host-a" / "oncecron"), target, "oncecron")
