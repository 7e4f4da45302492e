"""`oncecron metrics`: what Prometheus reads, by the installed console script."""

import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from answers import refused
from flooded import forge_keys
from log_of import Store
from prometheus import promtool
from servers import eventually
from servers.oncecron import CONSOLE_SCRIPT, Oncecron
from servers.process import kill_tree

Hosts = Callable[..., Oncecron]
SERIES = re.compile(r'(\w+)(?:\{key="([^,]*)"\}|\{.*\})? (\S+)')
AWAY = "postgresql://u:s3cret@127.0.0.1:1/d"


@pytest.fixture
def host(store: Store, new_host: Hosts) -> Oncecron:
    """Fire a key that is well, and one that has failed twice."""
    host = new_host("host-a")
    host.run("fine", "--tick", "t", "--", "true")
    for tick in ("1", "2"):
        host.run("bad/key", "--tick", tick, "--", "sh", "-c", "exit 3")
    return host


def series(text: bytes) -> dict[tuple[str, str | None], float]:
    """Return the values by metric and key; promtool must find nothing wrong."""
    promtool("check", "metrics", text=text)
    found = {}
    for line in text.decode().splitlines():
        if not line.startswith("#"):
            match = SERIES.fullmatch(line)
            assert match, line
            found[match[1].removeprefix("oncecron_"), match[2]] = float(match[3])
    return found


def test_keys_at_a_glance(host: Oncecron) -> None:
    """The findings of `check`, and the times of `jobs`; what does not exist is left out."""
    began = time.time()
    ended = host("metrics")
    assert (ended.status, ended.err) == (0, "")
    found = series(ended.out)
    assert found["up", None] == 1
    assert found["incomplete", None] == found["spooled_records", None] == 0
    assert began - 60 < found["collected_timestamp_seconds", None] < time.time() + 60
    assert (found["failures", "bad/key"], found["failures", "fine"]) == (2, 0)
    assert abs(found["last_failure_timestamp_seconds", "bad/key"] - began) < 60
    assert abs(found["last_success_timestamp_seconds", "fine"] - began) < 60
    assert ("last_success_timestamp_seconds", "bad/key") not in found
    assert ("running_since_timestamp_seconds", "fine") not in found
    assert {found["running", "fine"], found["paused", "fine"], found["missed_ticks", "fine"]} == {0}
    labels = dict(
        re.findall(
            r'(\w+)="([^"]*)"', re.findall(r"oncecron_info\{(.*)\} 1\.0", ended.out.decode())[0]
        )
    )
    assert labels.keys() == {"version", "schema", "server"}
    assert re.fullmatch(r"(PostgreSQL|Redis|Valkey|SQLite) \d+\.\d+.*", labels["server"])


FORGED = (
    *('a"b', "a\\", "a\nup 1", "\x1b[2J", 'k",x="y', "x" * 1_000_000, "", "*", "\u202etxt"),
    *("a b", "a#b", "caf\xe9", *(f"{number} of many" for number in range(500))),
)


@pytest.mark.own_log
def test_forged_keys_are_no_metrics(store: Store, host: Oncecron) -> None:
    """Prometheus reads all others, and that there is something which it cannot see."""
    before = series(host("metrics").out)
    forge_keys(store, FORGED)
    ended = host("metrics")
    assert ended.status == 0
    found = series(ended.out)
    assert found["incomplete", None] == 1
    assert found.keys() == before.keys()
    lines = ended.err.splitlines()
    assert len(lines) == 11, lines
    assert lines[-1] == "oncecron: more rows cannot be read and are left out"
    assert all(line.isprintable() and len(line) < 1000 for line in lines)


def test_a_store_that_is_away_is_no_old_answer(host: Oncecron, public_path: Path) -> None:
    """`oncecron_up 0` and nothing of any key: printed, and in place of the file that was there."""
    file = public_path / "oncecron.prom"
    assert host("metrics", "--textfile", file).status == 0
    assert ("failures", "fine") in series(file.read_bytes())
    for words in ((), ("--textfile", file)):
        ended = host("metrics", "--store", AWAY, *words)
        assert ended.status == 69
        assert "Connection refused" in ended.err
        assert "s3cret" not in ended.err
        found = series(ended.out or file.read_bytes())
        assert found.pop(("up", None)) == 0
        assert {name for name, _ in found} == {"collected_timestamp_seconds", "spooled_records"}


def test_a_file_is_replaced_in_one_step(host: Oncecron, public_path: Path) -> None:
    """Every user may read it; nothing else is left in the directory."""
    file = public_path / "collector" / "oncecron.prom"
    refused(host("metrics", "--textfile", file), 74, "cannot write")
    file.parent.mkdir()
    assert host("metrics", "--textfile", file).status == 0
    assert file.stat().st_mode & 0o777 == 0o644
    with file.open() as reader:
        assert host("metrics", "--textfile", file, "--store", AWAY).status == 69
        assert "oncecron_up 1" in reader.read()
    assert list(file.parent.iterdir()) == [file]


@contextmanager
def serving(host: Oncecron, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve at a free port; give the process and the address."""
    process = subprocess.Popen(
        [CONSOLE_SCRIPT, "metrics", "--listen", *words],
        env=host.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        line = process.stdout.readline()
        match = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+/metrics)\n", line)
        assert match, (line, process.poll())
        yield process, match[1]
    finally:
        if process.poll() is None:
            kill_tree(process)


def get(address: str) -> dict[tuple[str, str | None], float]:
    """Return what is served."""
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 - http, of this test
        return series(answer.read())


def test_each_request_is_a_new_look(host: Oncecron) -> None:
    """At loopback; a signal ends it with status 0, and without a word."""
    with serving(host, "0") as (process, address):
        assert get(address)["failures", "bad/key"] == 2
        host.run("bad/key", "--tick", "3", "--", "true")
        assert get(address)["failures", "bad/key"] == 0
        process.terminate()
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0


def test_the_server_outlives_its_store(public_path: Path) -> None:
    """It says once that the store is away, and once that it is back."""
    file = public_path / "store" / "oncecron.db"
    file.parent.mkdir(mode=0o700)
    host = Oncecron(f"sqlite://{file}", public_path)
    host.run("k", "--tick", "1", "--", "true")
    with serving(host, "127.0.0.1:0") as (process, address):
        assert get(address)["up", None] == 1
        kept = file.read_bytes()
        file.write_text("another program's")
        for _ in range(2):
            assert [name for name, key in get(address) if key is not None] == []
            assert get(address)["up", None] == 0
        file.write_bytes(kept)
        eventually(lambda: get(address)["up", None] == 1)
        assert ("failures", "k") in get(address)
        process.terminate()
        _, errors = process.communicate(timeout=20)
        away, back = errors.splitlines()
        assert "oncecron.db" in away
        assert back == "oncecron: the store answers again"
        assert process.returncode == 0


def test_a_store_that_never_answers(public_path: Path) -> None:
    """Once and when it serves: an answer before Prometheus stops waiting, also to the second request meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as hole:
        host = Oncecron(f"postgresql://u@127.0.0.1:{hole.getsockname()[1]}/d", public_path)
        began = time.monotonic()
        ended = host("metrics")
        assert time.monotonic() - began < 20
        assert ended.status == 69
        assert "no answer" in ended.err
        assert series(ended.out)["up", None] == 0
        with serving(host, "0") as (process, address), ThreadPoolExecutor() as pool:
            for found in pool.map(get, [address] * 3):
                assert found["up", None] == 0
            process.terminate()
            _, errors = process.communicate(timeout=20)
            assert process.returncode == 0
            assert len(errors.splitlines()) == 1
