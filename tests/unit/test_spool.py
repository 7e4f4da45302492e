"""What a store could not be told is on disk, whole, ours alone, and in order."""

import errno
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncecron.core.model import REFUSAL_REASONS, Firing, Holder, Refusal
from oncecron.core.tick import named_tick
from oncecron.core.units import DAY, LARGEST_SIZE
from oncecron.run.spool import Spool, SpoolError, skip_record

STORE = "postgresql://user:***@db.example/jobs"


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Give the path of a state directory that does not exist yet."""
    return tmp_path / "state" / "oncecron"


@pytest.fixture
def spool(state: Path) -> Spool:
    return Spool(str(state), STORE, "oncecron")


def record(key: str = "k", owner: str = "owner-1", **fields: Any) -> dict[str, Any]:
    """Return a record with what its readers look at."""
    return {
        **dict.fromkeys(("tick", "tick_instant", "fencing_token", "note")),
        **dict.fromkeys(("lost_reason", "request", "requested_by")),
        "cause": "schedule", "kind": "execution", "key": key, "shard": 0, "host": "h", "pid": 7,
        "fired_at": 1.5, "owner": owner, "attempt": 1, "outcome": "succeeded",
        **fields,
    }  # fmt: skip


def refused(spool: Spool, told: str) -> None:
    """Check that what is there is neither read, nor locked, nor changed, and that `flush` is told why."""
    before = {path: path.lstat() for path in files(spool)}
    store: Any = None  # which would be asked for its clock
    spool.deliver(store, "k", lambda: 1.0)
    spool.note_reached("k")
    assert (spool.has("k"), spool.has(), list(spool.pending("k"))) == (False, False, [])
    with pytest.raises(SpoolError, match=told):
        spool.refuse_unsafe()
    assert {path: path.lstat() for path in files(spool)} == before


def files(spool: Spool) -> list[Path]:
    """Return every file below the spool, hidden ones too."""
    return sorted(path for path in Path(spool.root).rglob("*") if not path.is_dir())


def test_nothing_is_touched_until_something_is_kept(spool: Spool, state: Path) -> None:
    """Making and asking an empty spool writes nothing."""
    assert not spool.has()
    assert not spool.has("k")
    assert list(spool.pending()) == []
    assert list(spool.taken()) == []
    spool.note_reached("k")
    assert not state.exists()


def test_a_record_comes_back_as_it_was(spool: Spool) -> None:
    """Any text of a record survives, also what is no valid UTF-8; it is known to be late."""
    given = record(note="ünï\ncode \udcff", exit_code=None, duration=0.1)
    spool.add(given)
    [(path, taken)] = spool.pending("k")
    assert taken == {**given, "late": True}
    assert "late" not in given
    assert json.loads(Path(path).read_text()) == taken
    assert spool.has("k")
    assert spool.has()


def test_a_record_that_the_disk_refuses_is_printed(
    spool: Spool, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing else has it."""
    assert spool.keep(record("here"))
    state.chmod(0o777)
    assert not spool.keep({"kind": "skip", "owner": "o", "key": "k"})
    said = capfd.readouterr().err
    assert said.startswith("oncecron: key k: a record is lost: ")
    assert said.endswith(": {'kind': 'skip', 'owner': 'o', 'key': 'k'}\n")


def test_keys_stores_and_namespaces_are_kept_apart(state: Path) -> None:
    """A record is pending for its own key, store and namespace alone, whatever their names look like."""
    one = Spool(str(state), STORE, "oncecron")
    keys = ["a/b", "a:b", "a_b", "..", ".hidden", "x" * 200, "x" * 199 + "y", "A", "a"]
    for key in keys:
        one.add(record(key))
    for key in keys:
        assert [taken["key"] for _, taken in one.pending(key)] == [key]
    assert sorted(taken["key"] for _, taken in one.pending()) == sorted(keys)
    assert len(one.keys()) == len(keys)
    for other in (Spool(str(state), STORE, "staging"), Spool(str(state), STORE + "x", "oncecron")):
        assert list(other.pending()) == []
    assert all(path.is_relative_to(one.root) for path in files(one))


def test_the_oldest_comes_first(spool: Spool) -> None:
    """Records are delivered in the order in which they were kept."""
    for number in range(3):
        spool.add(record(owner=f"owner-{number}"))
        [path] = [path for path in files(spool) if f"owner-{number}" in path.name]
        os.utime(path, (0, time.time() - 100 * number))
    assert [taken["owner"] for _, taken in spool.pending("k")] == ["owner-2", "owner-1", "owner-0"]


def test_the_same_record_is_kept_once(spool: Spool) -> None:
    """(owner, attempt) is what delivery goes by: told again it replaces, another attempt does not."""
    spool.add(record(note="first"))
    spool.add(record(note="second"))
    spool.add(record(attempt=2))
    assert sorted((taken["attempt"], taken.get("note")) for _, taken in spool.pending("k")) == [
        (1, "second"),
        (2, None),
    ]


def test_refusals_of_two_firings_are_two_records(spool: Spool) -> None:
    """Containers fire the same key in the same hundredth of a second, each with process 7."""
    firing = Firing(
        *("k", 0, named_tick("one"), "owner-1", Holder("h", 7, "u"), "true", 1.5, 60.0),
        *(None, None, False, None, None),
    )
    for owner in ("owner-1", "owner-2"):
        spool.add(skip_record(firing._replace(owner=owner), Refusal("no-store")))
    assert sorted(taken["owner"] for _, taken in spool.pending("k")) == ["owner-1", "owner-2"]


def test_every_reason_of_a_firing_is_kept(spool: Spool) -> None:
    """It was `held` while it waited, and `done` in the end; of each shard."""
    firing = Firing(
        *("k", 0, named_tick("one"), "owner-1", Holder("h", 7, "u"), "true", 1.5, 60.0),
        *(None, None, False, None, None),
    )
    wanted = [(shard, reason) for shard in (0, 1) for reason in sorted(REFUSAL_REASONS)]
    for shard, reason in wanted * 2:
        spool.add(skip_record(firing._replace(shard=shard), Refusal(reason)))
    kept = sorted((taken["shard"], taken["reason"]) for _, taken in spool.pending("k"))
    assert kept == wanted
    assert list(spool.taken("k", ends=True)) == []


def test_a_firing_can_keep_a_refusal_and_an_execution(spool: Spool) -> None:
    """It gave up an unanswered claim: that it did not start, and why."""
    spool.add(record(attempt=None))
    refusal = record(kind="skip", reason="no-store", at=1.5)
    del refusal["attempt"]
    spool.add(refusal)
    assert sorted(taken["kind"] for _, taken in spool.pending("k")) == ["execution", "skip"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_all_of_it_is_ours_alone(spool: Spool, state: Path, umask: int) -> None:
    """Directories 0700 and files 0600, whatever the umask allows."""
    os.umask(umask)
    spool.add(record())
    spool.note_unreachable("k")
    assert list(spool.taken())
    below = [state, *state.rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in below}
    assert {oct(modes[path]) for path in below if path.is_dir()} == {oct(0o700)}
    assert all(mode & 0o077 == 0 for mode in modes.values())


def test_a_state_directory_that_is_a_link_is_refused(
    spool: Spool, state: Path, tmp_path: Path
) -> None:
    """Somebody may have put it there: nothing is written through it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    state.parent.mkdir()
    state.symlink_to(elsewhere)
    with pytest.raises(SpoolError, match="is a symbolic link"):
        spool.add(record())
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_the_place_of_a_directory_is_refused(spool: Spool, tmp_path: Path) -> None:
    """Below the state directory likewise, at every level."""
    spool.add(record())
    spool.note_unreachable("k")
    [key] = Path(spool.root).iterdir()
    (key / "no-record.json").touch()
    for place in (key, Path(spool.root), Path(spool.root).parent):
        moved = tmp_path / "moved"
        place.rename(moved)
        place.symlink_to(moved)
        with pytest.raises(SpoolError, match="is a symbolic link"):
            spool.add(record(owner="owner-2"))
        refused(spool, "is a symbolic link")
        place.unlink()
        moved.rename(place)
    assert len(list(spool.pending())) == 1


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write_to_is_refused(
    spool: Spool, state: Path, mode: int
) -> None:
    """The message names the directory and the cure."""
    state.mkdir(parents=True)
    state.chmod(mode)
    with pytest.raises(SpoolError, match="chmod 700"):
        spool.add(record())
    assert list(state.iterdir()) == []


def test_a_world_writable_directory_above_is_refused(spool: Spool, state: Path) -> None:
    """Everybody could put another state directory in its place."""
    spool.add(record())
    state.parent.chmod(0o777)
    with pytest.raises(SpoolError, match="world-writable"):
        spool.add(record())
    refused(spool, "world-writable")


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o1777])
def test_what_is_usual_above_is_accepted(spool: Spool, state: Path, mode: int) -> None:
    """A group that the owner let in, and names that the sticky bit keeps."""
    state.parent.mkdir()
    state.parent.chmod(mode)
    spool.add(record())
    assert spool.has("k")


def test_a_link_above_is_followed_where_nobody_else_could_set_it(
    state: Path, tmp_path: Path
) -> None:
    """A home on another disk is usual; what is above its true place counts too."""
    true = tmp_path / "disk" / "home"
    true.mkdir(parents=True)
    (tmp_path / "home").symlink_to(true)
    spool = Spool(str(tmp_path / "home" / "oncecron"), STORE, "oncecron")
    spool.add(record())
    assert spool.has("k")
    true.parent.chmod(0o777)
    refused(spool, "world-writable")


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT PROVEN: another user's directory needs root")
@pytest.mark.parametrize(
    ("up", "told"), [(0, "chown"), (2, "chown"), (3, "chown"), (4, "belongs to user 65534")]
)
def test_another_users_directory_is_refused(spool: Spool, up: int, told: str) -> None:
    """Root neither writes nor believes what is there, at every level; nor below what another user could replace."""
    spool.add(record())
    place = [Path(spool.root) / "k", *(Path(spool.root) / "k").parents][up]
    os.chown(place, 65534, 65534)
    place.chmod(0o2775)
    with pytest.raises(SpoolError, match=told):
        spool.add(record())
    refused(spool, told)


def test_a_link_in_the_place_of_a_record_is_not_followed(spool: Spool, tmp_path: Path) -> None:
    """It is set aside, and what it points to is neither read nor changed."""
    spool.add(record())
    secret = tmp_path / "secret.json"
    secret.write_text('{"kind": "execution", "key": "k", "secret": 1}')
    [(path, _)] = spool.pending("k")
    (Path(path).parent / "link.json").symlink_to(secret)
    assert [taken["owner"] for _, taken in spool.taken("k")] == ["owner-1"]
    assert (Path(path).parent / "link.json.broken").is_symlink()
    assert secret.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT PROVEN: another user's file needs root")
def test_what_another_user_left_in_a_directory_that_is_ours_now_is_set_aside(spool: Spool) -> None:
    """The cure was chown and chmod of the directory alone."""
    spool.add(record())
    [(path, _)] = spool.pending("k")
    os.chown(path, 65534, 65534)
    assert list(spool.taken("k")) == []
    assert spool.set_aside() == [(path + ".broken", None)]


def test_a_file_that_is_larger_than_any_record_is_not_read(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fill the memory before the claim. The largest record is read."""
    largest = record(output="\x01" * LARGEST_SIZE, command="\x01" * (1 << 16), note="\udcff" * 9999)
    spool.add(largest)
    [(path, taken)] = spool.taken("k")
    assert taken == {**largest, "late": True}
    os.truncate(path, 1 << 30)  # with a hole, which needs no room
    monkeypatch.setattr(json, "load", lambda _: pytest.fail("it is read"))
    assert list(spool.taken("k")) == []
    assert spool.set_aside() == [(f"{path}.broken", None)]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[1]", b"\xff", b"null", b"[" * 100_000, b'{"kind": []}'),
        *(b'{"kind": "execution", "key": "k"}', json.dumps(record(kind="skip")).encode()),
        *(
            json.dumps(record(**fields)).encode()
            for fields in (
                *({"pid": "7"}, {"pid": True}, {"pid": 1 << 63}, {"attempt": 1.5}, {"host": None}),
                *({"fired_at": float("inf")}, {"fired_at": 1e12}, {"duration": float("nan")}),
                *({"host": ["h"]}, {"outcome": "exploded"}, {"cause": {}}, {"late": "yes"}),
                *({"key": "a b"}, {"key": ""}, {"output": b"x".hex() * 0 or 1}),
            )
        ),
        json.dumps(record()).replace("1.5", "1e999").encode(),
    ],
)
def test_a_broken_file_is_set_aside(spool: Spool, content: bytes) -> None:
    """It is kept for a person under another name by who delivers, and by nobody else; the others are delivered."""
    spool.add(record())
    [(path, _)] = spool.pending("k")
    broken = Path(path).with_name("a.json")
    broken.write_bytes(content)
    assert [taken["owner"] for _, taken in spool.pending("k")] == ["owner-1"]
    assert broken.exists()
    for _ in range(2):
        assert [taken["owner"] for _, taken in spool.taken("k")] == ["owner-1"]
    assert not broken.exists()
    assert broken.with_name("a.json.broken").read_bytes() == content


@pytest.mark.parametrize(
    ("lives", "age", "kept"),
    [(False, 60, False), (True, 60, True), (True, 90_000, False), (False, 0, True)],
)
def test_what_a_killed_process_was_writing_goes(
    spool: Spool, lives: bool, age: float, kept: bool
) -> None:
    """Unless its process lives, or may live where nobody sees it: in another container. A pid returns."""
    spool.add(record())
    [(path, _)] = spool.pending("k")
    with subprocess.Popen(["true"]) as gone:
        pid = os.getpid() if lives else gone.pid
    half = Path(path).with_name(f".owner-2-1.json.{pid}")
    half.write_text('{"kind"')
    os.utime(half, (time.time() - age,) * 2)
    assert len(list(spool.pending("k"))) == 1
    assert half.exists()
    assert spool.has("k")
    assert half.exists() == kept


def test_a_record_that_goes_meanwhile_is_no_error(spool: Spool) -> None:
    """Somebody else has delivered it between the look and the reading."""
    for number in range(3):
        spool.add(record(owner=f"owner-{number}"))
    seen = []
    for path, taken in spool.pending("k"):
        seen.append(taken["owner"])
        for other in files(spool):
            if str(other) != path:
                other.unlink()
    assert len(seen) == 1


def test_a_disk_that_takes_nothing_is_told_and_leaves_nothing(state: Path) -> None:
    """The message says where; no half a record stays, and the next attempt is not in its own way."""
    script = (
        "import resource, signal, sys; from oncecron.run.spool import Spool, SpoolError\n"
        f"spool = Spool({str(state)!r}, 's', 'n'); record = {record()!r}\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
        "for _ in range(2):\n"
        "    try: spool.add(record)\n"
        "    except SpoolError as error: print(error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1:] * 2)\n"
        "spool.add(record); print(len(list(spool.pending())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    *complaints, pending = done.stdout.splitlines()
    assert len(complaints) == 2
    assert all(line.startswith(f"cannot write to {state}") for line in complaints)
    assert all("too large" in line for line in complaints)
    assert pending == "1"
    assert [path for path in state.rglob(".*") if not path.is_dir()] == []


def test_a_record_is_there_whole_or_not_at_all_after_a_kill(state: Path) -> None:
    """Kill -9 in the middle of writing many: every file that has a record's name is a whole record."""
    script = (
        "from oncecron.run.spool import Spool\n"
        f"spool = Spool({str(state)!r}, 's', 'n')\n"
        f"record = {record(note='x' * 50000)!r}\n"
        "for number in range(100000):\n"
        "    spool.add({**record, 'owner': str(number)})\n"
        "    print(number, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        for _ in range(20):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    spool = Spool(str(state), "s", "n")
    whole = [taken["owner"] for _, taken in spool.pending("k")]
    assert set(map(str, range(20))) <= set(whole), "what was kept was on the disk"
    assert not [path for path in files(spool) if path.suffix == ".broken"]


def test_a_change_that_the_directory_does_not_take_is_told(spool: Spool) -> None:
    """Neither a record that is delivered nor one that is broken can be moved out of the way."""
    spool.add(record())
    [(path, _)] = spool.pending("k")
    Path(path + ".broken").mkdir()
    Path(path).write_text("no record")
    with pytest.raises(SpoolError, match=r"cannot remove or rename .*: Is a directory"):
        list(spool.taken())
    with pytest.raises(SpoolError, match="Is a directory"):
        spool.remove(path + ".broken")


def test_one_at_a_time_delivers_the_records_of_a_key(spool: Spool) -> None:
    """They are left out while another process delivers them, and those of other keys are not. Its death frees them."""
    for key in ("j", "k", "l"):
        spool.add(record(key))
    script = (
        "import sys; from oncecron.run.spool import Spool\n"
        f"taken = Spool({spool._state!r}, {STORE!r}, 'oncecron').taken('k')\n"
        "print(next(taken)[1]['key'], flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-P", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"k\n"
        assert list(spool.taken("k")) == []
        assert [taken["key"] for _, taken in spool.taken()] == ["j", "l"]
        assert spool.was_busy
        assert len(list(spool.pending())) == 3  # which only reads
        other.send_signal(signal.SIGKILL)
    assert [taken["key"] for _, taken in spool.taken("k")] == ["k"]
    lock = spool.lock("k")
    assert lock is not None
    assert not os.get_inheritable(lock)
    os.close(lock)


def test_a_file_system_without_locks_and_without_sync_is_enough(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is refused is no lock of another process, and no record that is lost. A full disk is."""

    def refuse(number: int) -> Callable[..., None]:
        def call(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        return call

    for number in (errno.EPERM, errno.ENOSYS, errno.EINVAL):
        monkeypatch.setattr(os, "fsync", refuse(number))
        monkeypatch.setattr(fcntl, "flock", refuse(number))
        spool.add(record())
        [(path, _)] = spool.taken()
        spool.remove(path)
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(SpoolError, match="Input/output error"):
        spool.add(record())


def test_a_lock_that_is_a_link_is_not_followed(spool: Spool, tmp_path: Path) -> None:
    """Nobody's file is opened in its place."""
    spool.add(record())
    (Path(spool.root) / "k" / ".lock").symlink_to(tmp_path / "victim")
    assert list(spool.taken()) == []
    assert not (tmp_path / "victim").exists()


def test_nothing_is_pending_once_all_is_delivered(spool: Spool) -> None:
    """Neither an empty directory, nor the note of an outage, nor a file set aside is looked at again."""
    spool.add(record())
    spool.note_unreachable("k")
    [(path, _)] = spool.pending("k")
    assert spool.has("k")
    Path(path).write_text("no record")
    assert list(spool.taken()) == []
    assert spool.set_aside() == [(path + ".broken", None)]
    assert (spool.has("k"), spool.has()) == (False, False)


def test_a_spool_that_was_delivered_costs_one_look(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each firing pays for it: who may write above is asked where there are records alone. The lock is none."""
    spool.add(record())
    [(path, _)] = spool.taken("k")
    spool.remove(path)
    asked: list[str] = []
    monkeypatch.setattr("oncecron.run.spool.safe_paths.unsafe", asked.append)
    assert not spool.has("k")
    assert list(spool.taken("k")) == []
    assert asked == []


def test_an_unreachable_store_is_news_once(spool: Spool) -> None:
    """Once for each key, until it has been reached again."""
    assert spool.note_unreachable("k")
    assert not spool.note_unreachable("k")
    assert spool.note_unreachable("other")
    spool.note_reached("k")
    assert spool.note_unreachable("k")
    assert list(spool.pending()) == []


def test_that_a_store_lets_nothing_start_is_news_once_a_day(spool: Spool) -> None:
    """For all keys of this host together."""
    assert spool.note_waiting()
    assert not spool.note_waiting()
    note = os.path.join(spool.root, ".waiting")
    for days in (-2, 2):  # a clock may be set back
        os.utime(note, (0, time.time() + days * DAY))
        assert spool.note_waiting()
        assert not spool.note_waiting()
    assert list(spool.pending()) == []


def test_where_nothing_can_be_noted_it_is_always_news(spool: Spool, state: Path) -> None:
    """A line too many is better than one too few."""
    state.parent.mkdir()
    state.write_text("in the way")
    assert spool.note_unreachable("k")
    assert spool.note_waiting()
    assert spool.note_waiting()
    assert spool.note_unreachable("k")
    with pytest.raises(SpoolError, match=str(state)):
        spool.add(record())
