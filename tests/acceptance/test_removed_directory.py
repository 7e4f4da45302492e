"""A working directory that was removed, or that the user may not enter, concerns relative paths alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from log_of import Store
from servers.oncecron import Ended, Oncecron
from servers.process import without_overrides

GONE = 'd=$(mktemp -d) && cd "$d" && rmdir "$d" && exec "$@"'
CLOSED = 'd=$(mktemp -d) && cd "$d" && chmod 0 "$d" && exec "$@"'


@pytest.fixture(params=[GONE, CLOSED], ids=["removed", "closed"])
def there(
    request: pytest.FixtureRequest, new_host: Callable[..., Oncecron], public_path: Path
) -> Oncecron:
    """Give a host whose commands run in such a directory."""
    host = new_host(TMPDIR=str(public_path))
    host.prefix = ["/bin/sh", "-c", request.param, "sh", *without_overrides()]
    return host


def test_a_firing_and_what_people_ask(store: Store, there: Oncecron) -> None:
    """A job runs as anywhere else, by each way through a firing, and every command answers."""
    assert there.run("k", "--tick", "1", "--", "echo", "ran") == Ended(0, b"ran\n", "")
    captured = ("--capture", "1k", "--only-if", "true")
    assert there.run("k", "--tick", "2", *captured, "--", "/bin/echo", "2").out == b"2\n"
    ended = there("each", "--key", "e", "--tick", "1", "--items", "echo 7", "--", "echo", "{}")
    assert (ended.status, ended.out) == (0, b"7\n")
    for words in (
        *(("history",), ("check",), ("pause", "k", "--store", store.operator_url)),
        *(("items", "e"), ("flush",), ("report", "--html", "-")),
    ):
        ended = there(*words)
        assert (ended.status, ended.err) == (0, ""), words
    assert [run.outcome for run in store.executions("k")] == ["succeeded"] * 2


def test_the_local_store_is_made_there(there: Oncecron) -> None:
    """Its directory, and the check who may write to it, need no working directory either."""
    local = ("--store", "local")
    assert there.run("k", *local, "--tick", "1", "--", "echo", "ran") == Ended(0, b"ran\n", "")
    assert there.run("k", *local, "--tick", "1", "--", "echo", "ran") == Ended(0, b"", "")


def test_a_relative_path(there: Oncecron) -> None:
    """The message names it, and what is to be done."""
    ended = there.run("k", "--config", "./x.toml", "--", "true")
    assert ended.status == 78
    assert "configuration file ./x.toml cannot be read: " in ended.err
    for words in (("lint", "tab"), ("lint", "./"), ("wrap", "--in-place", "tab")):
        ended = there("crontab", *words)
        assert ended.status == 66, ended
        assert "oncecron: cannot read " in ended.err
        if there.prefix[2] == GONE:
            assert f"{words[-1]}: the working directory was removed; change to another" in ended.err
