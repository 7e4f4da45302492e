"""The file for a place: what counts of what a job leaves there, and what is ignored with a line."""

import errno
import os
from pathlib import Path

import pytest

from oncecron.core.model import LONGEST_PLACE, Firing, Holder, Lease, place_of, place_text
from oncecron.core.tick import NO_TICK
from oncecron.run.place_file import PlaceFile

FIRING = Firing(
    *("k", 0, NO_TICK, "a-secret-owner", Holder("h", 1, "root"), "true", 0.0, 60.0),
    *(None, None, False, None, None),
)
LEASE = Lease("k", 0, None, FIRING.owner, 1, 1, 1, 60.0, 0.0, 0.0)


class Job:
    """What a job does with the file of its place, and what its guard sees and says."""

    def __init__(self, place: bytes = b"") -> None:
        self.said: list[str] = []
        self.place = PlaceFile(FIRING, LEASE._replace(place=place), self.said.append)
        self.path = Path(self.place.make() or "")

    def leaves(self, text: bytes) -> bytes | None:
        self.path.write_bytes(text)
        return self.place.look()

    def ignored(self, why: str) -> None:
        """Fail unless it is ignored, with one line, however often it is looked at; the last good place stays."""
        for _ in range(3):
            assert self.place.look() is None
        assert self.place.end() == b"41"
        [line] = self.said
        assert why in line
        assert not self.path.parent.exists()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


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


def test_the_file_is_the_users_alone(temporary: Path) -> None:
    """In a directory of its own, empty or with the place and a newline; both are removed."""
    for place, text in ((b"", b""), (b"4\xff", b"4\xff\n")):
        job = Job(place)
        assert job.path.read_bytes() == text
        assert job.path.stat().st_mode & 0o777 == 0o600
        assert job.path.parent.stat().st_mode & 0o777 == 0o700
        (job.path.parent / "place.new").touch()
        assert job.place.look() is None
        assert job.place.end() is None
        assert list(temporary.iterdir()) == []
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
    assert job.place.end() == b"43\n44"
    assert job.said == []


def test_what_is_being_written_does_not_count(job: Job) -> None:
    """A file that was just truncated, or has no newline yet, or is about to be replaced; the end looks once more."""
    for text in (b"", b"4", b"42"):
        assert job.leaves(text) is None
    job.path.unlink()
    assert job.place.look() is None
    job.path.write_bytes(b"42\n")
    assert job.place.end() == b"42"
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
    job.ignored(f"has more than {LONGEST_PLACE} bytes")


def test_a_nul_is_no_part_of_a_place(job: Job) -> None:
    """No store has it in a text."""
    job.path.write_bytes(b"4\0002\n")
    job.ignored("has a NUL")


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
    job.ignored("is no regular file")
    assert secret.read_bytes() == b"secret\n"


def test_a_tree_that_a_job_has_put_there_stays(job: Job) -> None:
    """What is not oncecron's is not removed with its content."""
    (job.path.parent / "tree").mkdir()
    kept = job.path.parent / "tree" / "file"
    kept.touch()
    job.place.end()
    assert kept.exists()


def test_another_directory_stands_in(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the temporary one is gone: the state directory; without both, the command runs without, after a line."""
    monkeypatch.setenv("TMPDIR", str(temporary / "gone"))
    (temporary / "state" / "oncecron").mkdir(parents=True)
    job = Job()
    assert job.path.is_relative_to(temporary / "state")
    assert job.place.end() is None
    (temporary / "state" / "oncecron").rmdir()
    job = Job()
    [line] = job.said
    assert "runs without $ONCECRON_PLACE" in line
    assert "No such file or directory" in line
    assert job.place.look() is None
    assert job.place.end() is None


def test_a_full_disk_leaves_no_half_place(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs without, and nothing is left behind."""

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    job = Job(b"41")
    [line] = job.said
    assert "No space left on device" in line
    assert [*temporary.iterdir()] == []


def test_the_wrapper_finds_the_file() -> None:
    """It knows nothing of what the guard has sent: what stands there counts, also that the place was taken back."""
    for text, place in ((b"42\n", b"42"), (b"\n", b""), (b"", None)):
        job = Job()
        job.path.write_bytes(text)
        found = PlaceFile(FIRING, LEASE, job.said.append).find()
        assert found.end() == place
        assert not job.path.parent.exists()
        assert PlaceFile(FIRING, LEASE, job.said.append).find().end() is None
