"""Which configuration and store files are read: those that only root and the user can change, and that are files."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from config_files import only_this_directory, put, settings  # noqa: F401

from oncecron.config.file import read_file
from oncecron.config.file_reader import read_private
from oncecron.config.settings import Settings
from oncecron.core.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("only_this_directory")


@pytest.fixture(params=["configuration file", "store file"])
def use(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], Settings]:
    """Give a function that reads a file as each kind."""

    def read(path: Path) -> Settings:
        if request.param == "configuration file":
            return settings(config=str(path))
        monkeypatch.setenv("ONCECRON_STORE_FILE", str(path))
        found = settings()
        found.address()
        return found

    return read


def refused(use: Callable[[Path], Settings], path: Path, *told: str) -> None:
    """Check that the file is refused with these words."""
    with pytest.raises(ConfigurationError) as caught:
        use(path)
    assert caught.value.exit_status == 78
    for words in (str(path), *told):
        assert words in str(caught.value)


def plain(place: Path) -> Path:
    """Write a file that is right as both kinds, in a directory of its own."""
    place.mkdir()
    path = place / "file"
    put(path, "# local\n")
    return path


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o660, 0o664, 0o620])
def test_what_others_may_write_is_refused(
    tmp_path: Path, use: Callable[[Path], Settings], mode: int
) -> None:
    """A group too, as cron does: else others choose what is run, or where."""
    path = plain(tmp_path / "d")
    path.chmod(mode)
    refused(use, path, f"other users can write to {path}; ", f"run `chmod go-w {path}`")
    assert read_file(os.devnull).values == {}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o707])
def test_what_others_may_replace_is_refused(
    tmp_path: Path, use: Callable[[Path], Settings], mode: int
) -> None:
    """Whoever may write to the directory, puts another file there; not where the sticky bit forbids it."""
    path = plain(tmp_path / "d")
    path.parent.chmod(mode)
    refused(
        use, path, f"other users can write to {path.parent}; ", f"run `chmod go-w {path.parent}`"
    )
    path.write_text("local")
    path.parent.chmod(mode | 0o1000)
    assert read_private(str(path), "file") == ("local", 0o100600)


def test_a_directory_above_may_belong_to_a_group(
    tmp_path: Path, use: Callable[[Path], Settings]
) -> None:
    """A home directory often does, to its user's own; but not to everybody."""
    (tmp_path / "home").mkdir()
    path = plain(tmp_path / "home" / "d")
    path.write_text("local")
    path.parent.parent.chmod(0o775)
    assert read_private(str(path), "file") == ("local", 0o100600)
    path.parent.parent.chmod(0o777)
    refused(use, path, f"chmod go-w {path.parent.parent}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("what", ["", "..", "../.."])
def test_what_belongs_to_another_user_is_refused(
    tmp_path: Path, use: Callable[[Path], Settings], what: str
) -> None:
    """The file, its directory, one above: its owner chooses what root runs."""
    (tmp_path / "above").mkdir()
    path = plain(tmp_path / "above" / "d")
    place = Path(os.path.normpath(path / what))
    os.chown(place, 65534, 65534)
    refused(use, path, f"{place} belongs to user 65534; ", f"run `chown root {place}`")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives links away")
def test_a_link_of_another_user_is_refused(tmp_path: Path, use: Callable[[Path], Settings]) -> None:
    """Also in the middle of a chain, and one to a directory."""
    path = plain(tmp_path / "d")
    path.write_text("local")
    (tmp_path / "theirs").symlink_to(path.parent)
    (tmp_path / "mine").symlink_to("theirs/file")
    assert read_private(str(tmp_path / "mine"), "file")[0] == "local"
    os.chown(tmp_path / "theirs", 65534, 65534, follow_symlinks=False)
    refused(use, tmp_path / "mine", "belongs to user 65534", f"chown -h root {tmp_path}/theirs")


def test_a_link_counts_with_what_it_leads_through(
    tmp_path: Path, use: Callable[[Path], Settings]
) -> None:
    """Where it stands is fine; where it leads, everybody may write."""
    path = plain(tmp_path / "d")
    path.parent.chmod(0o777)
    (tmp_path / "link").symlink_to("./d/../d/file")
    refused(use, tmp_path / "link", f"chmod go-w {path.parent}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_user_may_read_what_root_owns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/etc/oncecron.toml is everybody's; a file of a third user is nobody's."""
    path = put(tmp_path / "c.toml", 'ttl = "40s"\n', 0o644)
    monkeypatch.setattr("os.geteuid", lambda: 1234)
    assert settings(config=path)["ttl"] == 40.0
    os.chown(path, 65534, 65534)
    with pytest.raises(ConfigurationError, match=f"run `chown 1234 {path}`"):
        settings(config=path)


@pytest.mark.parametrize("kind", ["fifo", "directory", "device", "socket"])
def test_only_a_regular_file_is_read(
    tmp_path: Path, use: Callable[[Path], Settings], kind: str
) -> None:
    """A pipe without a writer would hold a firing up for ever."""
    path = tmp_path / "odd"
    told = "is not a regular file; name another file"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        told = "cannot be read"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    refused(use, path, told)
