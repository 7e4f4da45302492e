"""How a file is replaced: whole or not at all, as closed as it was, and never through a link of another user."""

import os
import stat
from pathlib import Path

import pytest
from servers.require import require_root

from oncecron.cli import whole_file
from oncecron.core.errors import OutputError

SOMEBODY = 65534


def access(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Give a directory where everybody may write, as /tmp is."""
    require_root("files of another user")
    place = tmp_path / "tmp"
    place.mkdir()
    place.chmod(0o1777)
    return place


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_what_is_replaced_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """At no moment can more users read it; `mode` is for a new file."""
    page = tmp_path / "page"
    page.touch()
    page.chmod(mode)
    before, modes = access(page), []
    synced = whole_file.safe_paths.sync_file

    def look(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        synced(descriptor)

    opened = os.open

    def looked(path: str, flags: int, mode: int = 0o777) -> int:
        modes.append(mode if flags & os.O_CREAT else 0)
        return opened(path, flags, mode)

    monkeypatch.setattr(whole_file.safe_paths, "sync_file", look)
    monkeypatch.setattr(whole_file.os, "open", looked)
    whole_file.replace(str(page), b"new", 0o644)
    assert (page.read_bytes(), access(page)) == (b"new", before)
    assert modes
    assert all(each & ~mode & 0o077 == 0 for each in modes)


def test_what_is_replaced_keeps_its_owner(tmp_path: Path) -> None:
    """And its group, in a directory that is closed to others."""
    require_root("a file of another user")
    page = tmp_path / "page"
    page.touch()
    page.chmod(0o640)
    os.chown(page, 4321, 1234)
    whole_file.replace(str(page), b"new")
    assert (page.read_bytes(), access(page)) == (b"new", (0o640, 4321, 1234))


def test_a_new_file_has_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    """Whatever the umask; without one, what the umask leaves."""
    before = os.umask(0o077)
    try:
        for name, mode in (("a", 0o644), ("b", None)):
            whole_file.replace(str(tmp_path / name), b"", mode)
    finally:
        os.umask(before)
    assert [access(tmp_path / name)[0] for name in "ab"] == [0o644, 0o600]


@pytest.mark.parametrize("led_by", ["file", "directory", "second"])
def test_a_link_of_another_user_is_not_followed(shared: Path, tmp_path: Path, led_by: str) -> None:
    """Whichever part of the path it is."""
    (tmp_path / "precious").write_text("precious")
    target = {"file": tmp_path / "precious", "directory": tmp_path, "second": tmp_path / "precious"}
    link = shared / "link"
    link.symlink_to(target[led_by])
    os.lchown(link, SOMEBODY, SOMEBODY)
    path = link / "precious" if led_by == "directory" else link
    if led_by == "second":
        path = tmp_path / "mine"
        path.symlink_to(link)
    with pytest.raises(OutputError, match=f"{link} is a link of user {SOMEBODY}; name the"):
        whole_file.replace(str(path), b"page")
    assert (tmp_path / "precious").read_text() == "precious"
    assert os.listdir(shared) == ["link"]


def test_a_link_of_ones_own_is_followed(tmp_path: Path) -> None:
    """It stays a link, also where its file is not there yet."""
    (tmp_path / "link").symlink_to("page")
    for data in (b"first", b"second"):
        whole_file.replace(str(tmp_path / "link"), data)
        assert (tmp_path / "page").read_bytes() == data
    assert (tmp_path / "link").is_symlink()


def test_a_file_that_another_user_has_put_into_tmp_is_refused(shared: Path) -> None:
    """It would keep its owner, who would get what is written."""
    page = shared / "page"
    page.touch()
    os.chown(page, SOMEBODY, SOMEBODY)
    with pytest.raises(OutputError, match=f"it belongs to user {SOMEBODY}, in a directory where"):
        whole_file.replace(str(page), b"secret")
    assert page.read_bytes() == b""
    assert os.listdir(shared) == ["page"]
    whole_file.edit(str(page), b"of its own", lambda: None)
    assert (page.read_bytes(), page.stat().st_uid) == (b"of its own", SOMEBODY)


def test_an_error_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """And nothing lies about."""
    page = tmp_path / "page"
    page.write_text("old")

    def disagree() -> None:
        assert page.read_text() == "old"
        raise OutputError("no")

    with pytest.raises(OutputError, match="no"):
        whole_file.edit(str(page), b"new", disagree)
    assert page.read_text() == "old"
    assert os.listdir(tmp_path) == ["page"]
