"""The file for a place: what counts of what a job leaves there, and what is ignored with a line."""

import errno
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oncecron.config.run_parser import ParsedRun
from oncecron.core.model import LONGEST_PLACE, Lease, place_of, place_text
from oncecron.run.place_file import PlaceFile
from oncecron.run.spec import make_spec

LEASE = Lease("k", 0, None, "a-secret-owner", 1, 1, 1, 60.0, 0.0, 0.0)
OTHER = LEASE._replace(owner="another-owner")


def place_file(said: list[str], key: str = "k") -> PlaceFile:
    spec = make_spec(ParsedRun({"key": key, "tick": "t", "store": "local"}, ["true"]))
    return PlaceFile(spec.spool, spec.firing, said.append)


class Job:
    """What a job does with the file of its place, and what its guard sees and says."""

    def __init__(self, place: bytes = b"", lease: Lease | None = LEASE, key: str = "k") -> None:
        self.said: list[str] = []
        self.place = place_file(self.said, key)
        self.path = Path(self.place.make(lease and lease._replace(place=place)) or "")

    def end(self) -> bytes | None:
        return self.place.end("failed")

    def leaves(self, text: bytes) -> bytes | None:
        self.path.write_bytes(text)
        return self.place.look()

    def ignored(self, why: str) -> None:
        """Fail unless it is ignored, with one line, however often it is looked at; the last good place stays."""
        for _ in range(3):
            assert self.place.look() is None
        assert self.end() == b"41"
        [line] = self.said
        assert why in line
        assert not self.path.parent.exists()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def left(state: Path) -> list[str]:
    """Return what is left of all starts."""
    return sorted(path.name for path in state.glob("oncecron/spool/*/.places/*"))


@pytest.fixture
def job() -> Job:
    job = Job()
    assert job.leaves(b"41\n") == b"41"
    return job


@pytest.mark.parametrize(
    "place",
    [b"", b"41", b"\\", rb"\\x41", b"\\x4", bytes(range(1, 256)), b"\xff" * LONGEST_PLACE, b"a\nb"],
)
def test_a_place_comes_back_from_its_text(place: bytes) -> None:
    """As stores keep it: ASCII, whatever its bytes are."""
    text = place_text(place)
    assert text is not None
    assert text.isascii()
    assert place_of(text) == place


@pytest.mark.parametrize("text", [None, "", "\\xzz", "é", "x" * (LONGEST_PLACE + 1), "\\x00"])
def test_what_is_no_place_counts_as_none(text: str | None) -> None:
    """Another program may have written it."""
    assert place_of(text) == b""


def test_the_file_is_the_users_alone(state: Path) -> None:
    """In a directory of its own, empty or with the place and a newline; both are removed."""
    for place, text in ((b"", b""), (b"4\xff", b"4\xff\n")):
        job = Job(place)
        assert job.path.read_bytes() == text
        assert job.path.stat().st_mode & 0o777 == 0o600
        assert job.path.parent.stat().st_mode & 0o777 == 0o700
        (job.path.parent / "place.new").touch()
        assert job.place.look() is None
        assert job.end() is None
        assert left(state) == []
        assert job.said == []


def test_each_place_is_told_once(job: Job) -> None:
    """Also one that replaces the last within a tick of the clock and is as long; an empty line takes it back."""
    times = job.path.stat()
    job.path.write_bytes(b"42\n")
    os.utime(job.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [job.place.look() for _ in range(3)] == [b"42", None, None]
    assert job.leaves(b"42\n") is None
    assert job.leaves(b"\n") == b""
    job.path.with_suffix(".new").write_bytes(b"43\n44\n")
    job.path.with_suffix(".new").rename(job.path)
    assert job.place.look() == b"43\n44"
    assert job.end() == b"43\n44"
    assert job.said == []


def test_what_is_being_written_is_looked_at_again_soon(job: Job) -> None:
    """Once: what is the same then has its time, and is named only if it stays until the look after that."""
    for text in (b"", b"4"):
        assert job.leaves(text) is None
        assert job.place.is_half_written
        assert job.leaves(b"42\n") == (b"42" if text == b"" else None)
        assert not job.place.is_half_written
    assert job.leaves(b"43") is None
    assert job.place.look() is None
    assert not job.place.is_half_written
    assert job.said == []
    assert job.place.look() is None
    assert "does not end in a newline" in job.said[0]
    assert not job.place.is_half_written


def test_what_is_being_written_does_not_count(job: Job) -> None:
    """A file that was just truncated, or has no newline yet, or is about to be replaced; the end looks once more."""
    for text in (b"", b"4", b"42"):
        assert job.leaves(text) is None
    job.path.unlink()
    assert job.place.look() is None
    job.path.write_bytes(b"42\n")
    assert job.end() == b"42"
    assert job.said == []


def test_a_text_that_stays_without_a_newline_is_named_once(job: Job) -> None:
    """Most commands write one."""
    job.path.write_bytes(b"42")
    job.ignored("does not end in a newline")


def test_the_longest_place_counts_and_no_longer_one(job: Job) -> None:
    """Nothing is read of a file of a gigabyte."""
    assert job.leaves(b"x" * LONGEST_PLACE + b"\n") == b"x" * LONGEST_PLACE
    assert job.leaves(b"41\n") == b"41"
    assert job.leaves(b"x" * (LONGEST_PLACE + 1) + b"\n") is None
    with job.path.open("r+b") as file:
        file.truncate(1 << 30)
    job.ignored(f"is longer than {LONGEST_PLACE} bytes")


def test_a_nul_is_no_part_of_a_place(job: Job) -> None:
    """No store has it in a text."""
    job.path.write_bytes(b"4\0002\n")
    job.ignored("contains a NUL byte")


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory", "device"])
def test_what_is_no_file_is_ignored(job: Job, tmp_path: Path, kind: str) -> None:
    """No link is followed, and nothing waits for a fifo."""
    job.path.unlink()
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret\n")
    {
        "link": lambda: job.path.symlink_to(secret),
        "dangling": lambda: job.path.symlink_to("/nowhere"),
        "fifo": lambda: os.mkfifo(job.path),
        "directory": job.path.mkdir,
        "device": lambda: job.path.symlink_to("/dev/zero"),
    }[kind]()
    job.ignored("is not a regular file")
    assert secret.read_bytes() == b"secret\n"


def test_a_tree_that_a_job_has_put_there_stays(job: Job) -> None:
    """What is not oncecron's is not removed with its content."""
    (job.path.parent / "tree").mkdir()
    kept = job.path.parent / "tree" / "file"
    kept.touch()
    job.end()
    assert kept.exists()


def test_a_directory_that_a_job_replaces_by_a_link_keeps_its_files(
    job: Job, tmp_path: Path
) -> None:
    """The link is removed, and nothing beyond it."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    job.path.unlink()
    job.path.parent.rmdir()
    job.path.parent.symlink_to(precious)
    job.end()
    assert (precious / "file").exists()
    assert not job.path.parent.is_symlink()


def no_space(_fd: int, _data: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("write", [no_space, lambda _fd, _data: 1])
def test_a_full_disk_leaves_no_half_place(
    state: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[int, bytes], int]
) -> None:
    """The command runs without, and nothing is left behind; that it goes on from nowhere is said at once."""
    monkeypatch.setattr(os, "write", write)
    job = Job(b"41")
    [line] = job.said
    assert "No space left on device" in line
    assert "runs without $ONCECRON_PLACE" in line
    assert left(state) == []


@pytest.mark.parametrize(("outcome", "lines"), [("succeeded", 0), ("failed", 1), ("lost", 1)])
def test_a_job_that_succeeds_without_a_place_is_not_mailed_about(
    state: Path, outcome: str, lines: int
) -> None:
    """It did not need one; where it failed, that may be why. A firing says it once, however often it starts."""
    (state / "oncecron").mkdir(mode=0o777)
    (state / "oncecron").chmod(0o777)
    said: list[str] = []
    place = place_file(said)
    for attempt in (1, 2):
        assert place.make(LEASE._replace(attempt=attempt)) is None
        assert place.look() is None
        assert place.end(outcome) is None
    assert [("runs without $ONCECRON_PLACE: other users" in line) for line in said] == [
        True
    ] * lines


def test_a_start_that_did_not_happen_brings_no_place_again() -> None:
    """That of the attempt before it is on record."""
    job = Job()
    job.path.write_bytes(b"42\n")
    assert [job.end(), job.end()] == [b"42", None]


# What killed firings have left


def test_the_next_start_removes_what_killed_ones_have_left(state: Path) -> None:
    """Of the same shard of the same key: the lease shows that it is nobody's. All others may be somebody's."""
    for lease in (LEASE, LEASE._replace(attempt=2)):
        Job(lease=lease)
    assert len(left(state)) == 1  # each of them has removed the one before
    others = [Job(lease=OTHER._replace(shard=1)), Job(key="k.0"), Job(key="k:0"), Job(lease=None)]
    new = Job(lease=OTHER)
    assert all(job.path.exists() for job in (new, *others))
    assert len(left(state)) == 1 + len(others)


def test_what_a_start_without_a_lease_has_left_is_removed_when_its_wrapper_is_gone(
    state: Path,
) -> None:
    """And not before, nor soon: with the same spool, another container has other pids."""
    process = subprocess.Popen(["true"])
    process.wait()
    yesterday = time.time() - 25 * 3600
    directory = Job(lease=None).path.parent
    kept = {f"k+0+old+{os.getpid()}": yesterday, f"k+0+young+{process.pid}": time.time()}
    for name, at in {**kept, f"k+0+gone+{process.pid}": yesterday}.items():
        directory.with_name(name).mkdir()
        os.utime(directory.with_name(name), (at, at))
    new = Job()
    assert left(state) == sorted([directory.name, new.path.parent.name, *kept])


def test_the_wrapper_finds_the_file() -> None:
    """It knows nothing of what the guard has sent: what stands there counts, also that the place was taken back."""
    for text, place in ((b"42\n", b"42"), (b"\n", b""), (b"", None)):
        job = Job()
        job.path.write_bytes(text)
        found = place_file(job.said)
        assert found.find(LEASE).end("lost") == place
        assert not job.path.parent.exists()
        assert found.find(LEASE).end("lost") is None
