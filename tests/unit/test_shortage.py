"""Which errors mean a host that is short of something, and what is told of a driver that is not there."""

import errno
import sys

import pytest

from oncecron.core.errors import ShortageError, StoreRefusesError, shortage_of
from oncecron.stores import open_reader
from oncecron.stores.address import parse_address


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BlockingIOError(errno.EAGAIN, "fork"), "ulimit -u"), (OSError(errno.ENOMEM, "mmap"), "out of memory"),
        (OSError(errno.EMFILE, "socket"), "ulimit -n"), (OSError(errno.ENFILE, "open"), "fs.file-max"),
        (OSError("libpq.so.5: cannot open shared object file: Too many open files"), "ulimit -n"),
        (ImportError("libssl.so: failed to map segment from shared object"), "out of memory"),
        (MemoryError(), "out of memory"), (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)  # fmt: skip
def test_what_the_host_is_short_of(error: Exception, told: str) -> None:
    """By the number, or by the loader's and the interpreter's words; it may be better later: 75."""
    shortage = shortage_of(error)
    assert shortage is not None
    assert shortage.exit_status == 75
    assert told in str(shortage)
    assert shortage_of(shortage) is shortage


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        OSError("no number"),
        ImportError("No module named 'x'"),
        RuntimeError("dictionary changed size during iteration"),
        ValueError("out of memory"),
    ],
)
def test_anything_else_is_a_bug_or_has_its_own_words(error: Exception) -> None:
    """It keeps its exit status."""
    assert shortage_of(error) is None


def without_psycopg(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    class Failing:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "psycopg":
                raise error

    for name in [*sys.modules]:
        if name.startswith(("psycopg", "oncecron.stores.postgres.reader")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Failing(), *sys.meta_path])


def test_a_psycopg_that_cannot_be_loaded_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libpq it raises an error of its own; the firing needs no psycopg, people do."""
    without_psycopg(monkeypatch, ImportError("no pq wrapper available"))
    with pytest.raises(StoreRefusesError, match=r"no pq wrapper.*install psycopg\[binary\]"):
        open_reader(parse_address("postgresql://h/d"), "oncecron")


def test_a_psycopg_that_finds_no_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no reason to install anything."""
    without_psycopg(monkeypatch, ImportError("libssl.so: failed to map segment"))
    with pytest.raises(ShortageError, match="out of memory"):
        open_reader(parse_address("postgresql://h/d"), "oncecron")
