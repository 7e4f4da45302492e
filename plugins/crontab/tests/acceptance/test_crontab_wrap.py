"""`oncecron crontab wrap` and `unwrap` as people call them: through pipes, in place, with a difference shown."""

import fcntl
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answers import refused
from servers import Disk
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron
from servers.process import as_user
from servers.require import require_root
from servers.waiting import eventually

MINE = b"MAILTO=ops\n0 2 * * *\tcd /app && ./bill.sh\n@reboot /opt/start\n"
SYSTEM = b"# oncecron: key=bill\n0 2 * * * root /opt/bill\n@daily root /opt/other\n"


@pytest.fixture
def host(public_path: Path) -> Oncecron:
    """Give a host without any store: none is asked."""
    host = Oncecron("", public_path, TZ="Europe/Berlin")
    del host.environment["ONCECRON_STORE"]
    return host


@pytest.fixture
def crontab(public_path: Path) -> Path:
    """Give a crontab."""
    path = public_path / "crontab"
    path.write_bytes(MINE)
    return path


def piped(host: Oncecron, *arguments: object, data: bytes = MINE) -> Ended:
    """Give a crontab on standard input."""
    done = subprocess.run(
        [CONSOLE_SCRIPT, "crontab", *map(str, arguments)],
        input=data, capture_output=True, env=host.environment, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr.decode())


# To standard output


def test_there_and_back_through_pipes(host: Oncecron) -> None:
    """`crontab -l | oncecron crontab wrap | crontab -`; what is left is told on standard error alone."""
    wrapped = piped(host, "wrap")
    assert wrapped.status == 0
    assert wrapped.out.splitlines()[1].startswith(
        b"0 2 * * *\t%s run --key bill.sh-" % bytes(CONSOLE_SCRIPT)
    )
    assert (
        b" --schedule '0 2 * * *' --tz Europe/Berlin --shell 'cd /app && ./bill.sh'" in wrapped.out
    )
    assert "line 3: unchanged: @reboot runs on every host" in wrapped.err
    assert wrapped.err.endswith(": @reboot /opt/start\n")
    assert piped(host, "wrap", "-", data=wrapped.out).out == wrapped.out
    assert piped(host, "unwrap", data=wrapped.out) == Ended(0, MINE, "")


def test_a_variable_that_stops_the_program_is_named(host: Oncecron) -> None:
    """With the line that mends this installation, which pip made; `unwrap` says nothing."""
    wrapped = piped(host, "wrap", data=b"PYTHONHOME=/x\n" + MINE)
    said = f"line 3: PYTHONHOME stops oncecron itself; to let it ignore that: `sed -i '1s/$/ -E/' {CONSOLE_SCRIPT}`\n"
    assert said in wrapped.err
    assert "PYTHONHOME" not in piped(host, "wrap").err
    assert piped(host, "unwrap", data=wrapped.out).err == ""


def test_with_strict_nothing_changes_if_a_line_is_left(host: Oncecron, crontab: Path) -> None:
    """The original comes out, or stays; each such line is named, and a comment leaves one out."""
    done = piped(host, "wrap", "--strict")
    assert (done.status, done.out) == (1, MINE)
    line, last = done.err.splitlines()[-2:]
    assert line.startswith("oncecron: line 3: --strict: @reboot runs on every host; ")
    assert last.startswith("oncecron: nothing is changed; correct the 1 line with errors")
    assert host("crontab", "wrap", "--strict", "--in-place", crontab).status == 1
    assert crontab.read_bytes() == MINE
    decided = MINE.replace(b"@reboot", b"# oncecron: off\n@reboot")
    done = piped(host, "wrap", "--strict", data=decided)
    assert (done.status, done.out.count(b"oncecron run")) == (0, 1)


def test_a_file_is_read_and_left(host: Oncecron, crontab: Path) -> None:
    """Its name stands in front of what is told."""
    done = host("crontab", "wrap", crontab)
    assert done.status == 0
    assert done.out == piped(host, "wrap").out
    assert f"{crontab}:3: unchanged" in done.err
    assert crontab.read_bytes() == MINE


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (MINE + b"# oncecron: kee=x\n@daily x\n", "line 4: # oncecron: unknown option 'kee'"),
        (
            MINE + b"* * * * x\n",
            "line 4: Debian's cron cannot read this line, and rejects the file: bad day-of-week",
        ),
        (
            MINE + b"\r\n",
            "line 4: Debian's cron cannot read this line, and rejects the file: bad minute: \\r\n",
        ),
        (MINE + b"@daily x\0\n", "line 4: cron ends the line at a NUL byte"),
        (MINE + b"@daily /" + b"x" * 997 + b"\n", "write `command = '...'` in [job.xxx"),
        (b"@daily root x\n* * * * * www-data y z\n", "add --user-field"),
    ],
)
def test_whatever_goes_wrong_a_crontab_comes_out(host: Oncecron, data: bytes, told: str) -> None:
    """The one that came in: behind the pipe it is installed, even if it is empty."""
    done = piped(host, "wrap", data=data)
    assert done.out == data
    assert done.status in (1, 64)
    assert told in done.err


@pytest.mark.parametrize(
    "typed", ["wrpa", "wrap --mistyped", "wrap --tz", "wrap --in-place", "unwrap here there"]
)
def test_a_crontab_comes_out_though_a_word_is_mistyped(host: Oncecron, typed: str) -> None:
    """From a pipe into a pipe, for whoever installs what comes."""
    done = piped(host, *typed.split())
    assert (done.status, done.out) == (64, MINE)
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1


def test_a_mistyped_word_reads_nothing_else(host: Oncecron, crontab: Path) -> None:
    """Only what would have been rewritten is let through, and only into a pipe."""
    assert piped(host, "lint", "--mistyped").out == b""
    with crontab.open("rb") as standing, (crontab.parent / "new").open("w+b") as new:
        done = subprocess.run(
            [CONSOLE_SCRIPT, "crontab", "wrap", "--mistyped"],
            stdin=standing, stdout=new, stderr=subprocess.PIPE, env=host.environment, check=False,
        )  # fmt: skip
        new.seek(0)
        assert (done.returncode, new.read(), standing.tell()) == (64, b"", 0)


CRON_TZ = b"CRON_TZ=Asia/Tokyo\n@daily date +%%F\n"


def test_doubts_about_the_zone_are_told(host: Oncecron) -> None:
    """Where $TZ is not the host's, which is cron's."""
    host.environment["TZ"] = "Antarctica/Troll"
    done = piped(host, "wrap", data=b"@daily x\n")
    assert b" --tz Antarctica/Troll " in done.out
    assert "using the time zone Antarctica/Troll from $TZ, but" in done.err


def test_the_cron_may_be_named(host: Oncecron) -> None:
    """Whether CRON_TZ and the percent sign count depends on it; Debian's is installed here."""
    here = piped(host, "wrap", data=CRON_TZ)
    assert b" --tz Europe/Berlin -- date +%%F\n" in here.out
    assert "line 1: Debian's cron ignores CRON_TZ" in here.err
    assert here.err == piped(host, "wrap", "--cron", "debian", data=CRON_TZ).err
    assert (
        b" --tz Asia/Tokyo -- date +%%F\n"
        in piped(host, "wrap", "--cron", "cronie", data=CRON_TZ).out
    )
    letter = piped(host, "wrap", "--cron", "busybox", data=CRON_TZ)
    assert b" --tz Europe/Berlin -- date +%%F\n" in letter.out
    assert letter.out != here.out
    assert piped(host, "unwrap", data=letter.out).out == CRON_TZ
    wrong = piped(host, "wrap", "--cron", "vixie", data=CRON_TZ)
    assert (wrong.status, wrong.out) == (64, CRON_TZ)
    assert "--cron: 'vixie' is not one of debian, cronie, busybox" in wrong.err


def test_a_difference_is_shown_and_nothing_written(host: Oncecron, crontab: Path) -> None:
    """One that patch(1) takes."""
    done = host("crontab", "wrap", "--diff", crontab)
    assert (done.status, crontab.read_bytes()) == (0, MINE)
    removed = [
        line for line in done.out.splitlines() if line.startswith(b"-") and b"---" not in line
    ]
    assert removed == [b"-0 2 * * *\tcd /app && ./bill.sh"]
    assert done.out.startswith(b"--- %s\n" % bytes(crontab))
    assert piped(host, "wrap", "--diff", data=b"@daily x\n# no newline").out.endswith(
        b"\\ No newline at end of file\n"
    )
    refusing = piped(host, "wrap", "--diff", data=MINE + b"nonsense\n")
    assert (refusing.status, refusing.out) == (1, b"")


def test_a_difference_is_in_lines_as_cron_reads_them() -> None:
    """Nothing but a newline ends one; patch(1) reads them so, too."""
    from oncecron_crontab.cli.files import CrontabFile, difference

    old, new = b"@daily a\r\n@daily b\r\n", b"@daily 'a\r'\n@daily b\r\n"
    assert difference(CrontabFile("c", old, None), new) == (
        b"--- c\n+++ c (wrapped)\n@@ -1,2 +1,2 @@\n-@daily a\r\n+@daily 'a\r'\n @daily b\r\n"
    )


# In place


def test_in_place(host: Oncecron, crontab: Path) -> None:
    """Mode and owner stay, the old file is beside it, and a second time there is nothing to do."""
    crontab.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(crontab, 4321, 1234)
    before = crontab.stat()
    done = host("crontab", "wrap", "--in-place", crontab)
    [backup] = crontab.parent.glob(".crontab.*~")
    assert (done.status, done.out.decode()) == (
        0,
        f"{crontab}: 1 line now run by oncecron; backup: {backup}\n",
    )
    for path in (crontab, backup):
        after = path.stat()
        assert (after.st_mode, after.st_uid, after.st_gid) == (
            before.st_mode,
            before.st_uid,
            before.st_gid,
        )
    assert crontab.stat().st_mtime > before.st_mtime
    assert crontab.read_bytes() == piped(host, "wrap").out
    assert backup.read_bytes() == MINE
    assert sorted(path.name for path in crontab.parent.iterdir()) == [backup.name, "crontab"]
    inode = crontab.stat().st_ino
    assert (
        host("crontab", "wrap", "--in-place", crontab).out.decode()
        == f"{crontab}: nothing to change\n"
    )
    assert crontab.stat().st_ino == inode
    assert host("crontab", "unwrap", "--in-place", crontab).status == 0
    assert crontab.read_bytes() == MINE
    assert backup.read_bytes() == MINE, "the first backup is overwritten"
    assert len(list(crontab.parent.glob(".crontab.*~"))) == 2


def test_a_backup_is_never_overwritten(crontab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the same second."""
    from oncecron_crontab.cli import files

    monkeypatch.setattr(files.time, "time", lambda: 0.0)
    before = f"{crontab.parent}/.c."
    paths = [files.keep(data, before, "~", str(crontab)) for data in (b"a", b"b", b"c")]
    assert [Path(path).read_bytes() for path in paths] == [b"a", b"b", b"c"]


def test_in_place_with_the_difference_shown_before(host: Oncecron, crontab: Path) -> None:
    """And where it cannot be shown, nothing is written."""
    with Path("/dev/full").open("wb") as full:
        done = host.start("crontab", "wrap", "--diff", "--in-place", crontab, stdout=full).wait()
    assert done.status == 74
    assert "No space left" in done.err
    assert crontab.read_bytes() == MINE
    done = host("crontab", "wrap", "--diff", "--in-place", crontab)
    assert done.out.startswith(b"--- ")
    assert done.out.endswith(b"~\n")
    assert crontab.read_bytes() != MINE


def test_in_place_through_a_link(host: Oncecron, crontab: Path) -> None:
    """What it leads to is replaced, not the link."""
    link = crontab.with_name("link")
    link.symlink_to("crontab")
    assert host("crontab", "wrap", "--in-place", link).status == 0
    assert link.is_symlink()
    assert crontab.read_bytes() == piped(host, "wrap").out
    assert not list(crontab.parent.glob(".link*"))


def test_in_place_through_a_link_of_another_user(host: Oncecron, crontab: Path) -> None:
    """Who made it could let root replace any crontab."""
    require_root("a link of another user")
    link = crontab.with_name("link")
    link.symlink_to("crontab")
    os.lchown(link, 65534, 65534)
    done = host("crontab", "wrap", "--in-place", link)
    assert (done.status, done.out) == (74, b"")
    assert f"cannot write {link}: {link} is a link of user 65534; name the file" in done.err
    assert crontab.read_bytes() == MINE
    assert sorted(os.listdir(crontab.parent)) == ["crontab", "link"]


def test_in_place_nothing_is_written_if_a_line_is_refused(host: Oncecron, crontab: Path) -> None:
    """No half of a crontab, and no backup."""
    crontab.write_bytes(MINE + b"nonsense\n")
    done = host("crontab", "wrap", "--in-place", crontab)
    assert (done.status, done.out) == (1, b"")
    assert "nothing is changed" in done.err
    assert [path.name for path in crontab.parent.iterdir()] == ["crontab"]


def test_in_place_names_that_cron_would_read_are_never_there(host: Oncecron, crontab: Path) -> None:
    """A dot in front hides them from cronie, systemd-cron and Debian's cron: no job runs twice."""
    from oncecron.cli import whole_file
    from oncecron_crontab.cli import files

    names = set()
    fill = whole_file.fill

    def noted(descriptor: int, *arguments: Any) -> None:
        names.add(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fill(descriptor, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_file, "fill", noted)
        backup = files.replace_file(files.read_source([str(crontab)]), b"new\n")
    assert os.path.basename(backup) in names
    assert len(names) == 2
    assert all(name.startswith(".") and name.endswith("~") for name in names)


def test_in_place_a_file_that_changes_meanwhile_is_left(crontab: Path) -> None:
    """Whoever edits it beside us wins."""
    from oncecron.core.errors import OutputError
    from oncecron_crontab.cli import files

    source = files.read_source([str(crontab)])
    crontab.write_bytes(b"edited\n")
    with pytest.raises(OutputError, match="changed while it was read"):
        files.replace_file(source, b"new\n")
    assert crontab.read_bytes() == b"edited\n"


def test_in_place_waits_for_another_run_and_sees_its_file(host: Oncecron, crontab: Path) -> None:
    """The second of two would replace the file of the first by what it made of the old one."""
    with crontab.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second = host.start("crontab", "wrap", "--in-place", crontab)
        eventually(
            lambda: re.search(
                rf"-> FLOCK .* {second.process.pid} ", Path("/proc/locks").read_text()
            )
        )
        new = crontab.with_suffix(".new")
        new.write_bytes(crontab.read_bytes())
        new.replace(crontab)
    done = second.wait()
    assert done.status == 74
    assert "changed while it was read, so it is left unchanged" in done.err


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Give a small disk."""
    disk = Disk(1)
    yield disk
    disk.remove()


def test_in_place_on_a_full_disk(host: Oncecron, disk: Disk) -> None:
    """The file is as it was, and nothing lies about."""
    crontab = disk.path / "crontab"
    crontab.write_bytes(MINE)
    disk.fill()
    done = host("crontab", "wrap", "--in-place", crontab)
    assert done.status == 74
    assert ": No space left on device" in done.err
    disk.free()
    assert crontab.read_bytes() == MINE
    assert [
        path.name for path in crontab.parent.iterdir() if path.name.startswith((".", "crontab"))
    ] == ["crontab"]


def test_in_place_what_may_not_be_written_is_told(host: Oncecron, public_path: Path) -> None:
    """With the reason; neither owner nor mode is given up for it."""
    require_root("a file of another user")
    directory = public_path / "cron.d"
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    crontab = directory / "app"
    crontab.write_bytes(MINE)
    crontab.chmod(0o644)
    program = (
        public_path / "oncecron"
    )  # which lines are to name: the clone may be closed to this user
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    host.environment["PATH"] += f":{public_path}"
    host.prefix = as_user(65534)
    done = host("crontab", "wrap", "--in-place", crontab)
    assert done.status == 74
    assert ": Operation not permitted" in done.err
    assert crontab.read_bytes() == MINE
    assert [path.name for path in directory.iterdir()] == ["app"]


def test_cron_s_own_spool_is_not_written_to(host: Oncecron) -> None:
    """crontab(1) does that, and notifies cron."""
    spool = "/var/spool/cron/crontabs/root"
    for command in ("wrap", "unwrap"):
        cure = f"run `oncecron crontab {command} --install --user root`"
        refused(host("crontab", command, "--in-place", spool), 64, cure)


def test_the_owner_of_a_crontab_in_a_pipe_is_named(host: Oncecron, crontab: Path) -> None:
    """Its derived keys are those of `--install --user`; the user need not exist on this host."""
    data = b"@daily bin/sync\n@daily /bin/poll\n"
    first, second = piped(host, "wrap", "--user", "ann", data=data).out.splitlines()
    assert b" --key ann.sync-" in first
    assert b" --key poll-" in second
    crontab.write_bytes(data)
    named = host("crontab", "wrap", "--user", "ann", crontab).out.splitlines()
    assert named == [first, second]


# What cannot be read


def test_what_cannot_be_read(host: Oncecron, public_path: Path) -> None:
    """66, with the path."""
    missing = public_path / "missing"
    refused(
        host("crontab", "wrap", missing), 66, f"cannot read {missing}: No such file or directory"
    )
    refused(host("crontab", "unwrap", public_path), 64, "is a directory: add --diff, --check")
    refused(host("crontab", "wrap", "/dev/null"), 66, "is not a regular file")


@pytest.mark.parametrize(
    ("typed", "status", "told"),
    [
        ("wrap <&-", 66, "standard input is closed"),
        ("lint <&-", 66, "standard input is closed"),
        ("wrap FILE >&-", 74, "standard output is closed"),
        ("unwrap FILE >&-", 74, "standard output is closed"),
        ("wrap --in-place FILE >&-", 74, "standard output is closed"),
        ("wrapp <&-", 64, "did you mean `oncecron crontab wrap`?"),
    ],
)
def test_a_stream_may_be_closed(
    host: Oncecron, crontab: Path, typed: str, status: int, told: str
) -> None:
    """It is said, in a line, and nothing is written."""
    line = f"exec {CONSOLE_SCRIPT} crontab {typed.replace('FILE', str(crontab))}"
    done = subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, env=host.environment, check=False
    )
    assert (done.returncode, done.stdout) == (status, b"")
    assert told in done.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in done.stderr
    assert b"internal" not in done.stderr
    assert crontab.read_bytes() == MINE


# System crontabs


def test_a_system_crontab(host: Oncecron, crontab: Path) -> None:
    """Only what is named is guarded; the mode that cron insists on stays."""
    crontab.write_bytes(SYSTEM)
    crontab.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
    refused(host("crontab", "wrap", "--in-place", crontab), 64, "add --user-field")
    done = host("crontab", "wrap", "--user-field", "--in-place", crontab)
    assert "1 line now run by oncecron" in done.out.decode()
    assert f"{crontab}:3: unchanged: not selected; to select it: `--only PATTERN`, or" in done.err
    lines = crontab.read_bytes().splitlines()
    assert lines[1].startswith(
        b"0 2 * * * root %s run --key bill --schedule" % bytes(CONSOLE_SCRIPT)
    )
    done = host("crontab", "wrap", "--user-field", "--only", "oth", "--only", "x*z", crontab)
    assert b"--key other-" in done.out


@pytest.mark.parametrize("way", ["file", "pipe"])
def test_a_file_of_cron_d_is_recognised_wherever_it_lies(
    host: Oncecron, crontab: Path, way: str
) -> None:
    """Wrapped without the users it would be a file that cron ignores, and no host would run anything."""
    data = b"SHELL=/bin/sh\n*/5 * * * * munin if [ -x /usr/bin/munin-cron ]; then /usr/bin/munin-cron; fi\n"
    crontab.write_bytes(data)
    done = host("crontab", "wrap", crontab) if way == "file" else piped(host, "wrap", data=data)
    place = f"{crontab}:2" if way == "file" else "line 2"
    assert (done.status, done.out) == (64, data)
    assert f"{place}: 'munin' seems to be a user before the command; add --user-field" in done.err
    refused(host("crontab", "lint", crontab), 64, "add --user-field")
    done = host("crontab", "wrap", "--user-field", "--only", "munin", crontab)
    assert b"* munin %s run --key munin-cron-" % bytes(CONSOLE_SCRIPT) in done.out


# The program


def test_the_path_is_that_by_which_it_was_called(host: Oncecron, public_path: Path) -> None:
    """A link that an administrator made stays valid when what it leads to moves."""
    link = public_path / "oncecron"
    link.symlink_to(CONSOLE_SCRIPT)
    host.environment["PATH"] = f"{public_path}:/usr/bin:/bin"
    host.script = Path("oncecron")
    host.prefix = ["/usr/bin/env"]
    crontab = public_path / "crontab"
    crontab.write_bytes(b"@daily x\n")
    assert host("crontab", "wrap", crontab).out.startswith(b"@daily %s run " % bytes(link))


def test_a_line_too_long_runs_from_the_configuration_file(
    host: Oncecron, public_path: Path
) -> None:
    """The cure works when it is copied: `command` in [job.KEY], and the line."""
    program = public_path / "print.sh"
    program.symlink_to("/usr/bin/printf")
    text = "x" * (980 - 2 * len(str(public_path)))
    command = f"{program} {text} >{public_path}/out"
    told = piped(host, "wrap", data=f"@daily {command}\n".encode()).err
    section = told.partition("` in ")[2].partition(" of the ")[0]
    line = told.partition("write here: ")[2].partition("\n")[0]
    config = public_path / "oncecron.toml"
    config.write_text(f"store = 'sqlite://{public_path}/db'\n{section}\ncommand = '{command}'\n")
    config.chmod(0o600)
    host.environment["ONCECRON_CONFIG"] = str(config)
    done = subprocess.run(["/bin/sh", "-c", line], env=host.environment, check=False)
    assert done.returncode == 0
    assert (public_path / "out").read_text() == text
