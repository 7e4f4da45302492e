"""`oncecron crontab lint` by the installed console script: what it reads, what it prints, how it ends."""

import json
import subprocess
from pathlib import Path

import pytest
from answers import refused
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron

JOB = "0 2 * * * /bin/bill\n"
ODD = "0 2 * * 5#2 /bin/bill\n"


@pytest.fixture
def host(public_path: Path) -> Oncecron:
    """Give a host without a store, and without a configuration."""
    host = Oncecron("", public_path)
    del host.environment["ONCECRON_STORE"]
    return host


def lint(host: Oncecron, *arguments: object, text: bytes | None = None) -> Ended:
    """Run it, with standard input if there is any."""
    done = subprocess.run(
        [CONSOLE_SCRIPT, "crontab", "lint", *map(str, arguments)],
        env=host.environment, input=text, stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr.decode())


def write(directory: Path, name: str, text: str) -> Path:
    """Write a crontab; return its path."""
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_is_said_of_what_is_well(host: Oncecron, public_path: Path) -> None:
    """Exit status 0, from a file and from standard input."""
    path = write(public_path, "well", JOB)
    assert lint(host, path) == (0, b"", "")
    assert lint(host, text=JOB.encode()) == (0, b"", "")
    assert lint(host, "-", text=JOB.encode()) == (0, b"", "")
    assert lint(host, path, "--json") == (0, b"[]\n", "")


def test_a_finding_is_a_line(host: Oncecron, public_path: Path) -> None:
    """File as typed, line, message, cure, kind; exit status 1."""
    path = write(public_path, "odd", f"# first\n{ODD}")
    ended = lint(host, path)
    assert (ended.status, ended.err) == (1, "")
    assert ended.out.decode() == (
        f"{path}:2: cron reads 5#2 in the day-of-week field as 5 and ignores the rest; "
        "write 5, and test for the rest in the command [field]\n"
    )


def test_the_same_as_json(host: Oncecron, public_path: Path) -> None:
    """Every field, also of a crontab that is no UTF-8."""
    path = public_path / "bytes"
    path.write_bytes(
        b"0 2 * * * /bin/\xe9t\xe9 --password=hunter2\n@reboot oncecron run\n0 3 * * * x\xff\n"
    )
    ended = lint(host, path, "--json")
    findings = json.loads(ended.out)
    assert ended.status == 1
    assert [each["finding"] for each in findings] == ["unguarded", "options", "unguarded"]
    assert {tuple(each) for each in findings} == {("file", "line", "finding", "message", "cure")}
    assert findings[0]["message"].startswith("`/bin/\\xe9t\\xe9 ")
    assert b"hunter2" not in ended.out
    assert findings[0]["file"] == str(path)


def test_lines_name_a_user_where_it_is_said_or_known(host: Oncecron, public_path: Path) -> None:
    """In /etc/cron.d and /etc/crontab, with --user-field; else a file that looks like it is refused."""
    path = write(public_path, "system", "0 2 * * * root /bin/bill\n0 3 * * 5#2 root /bin/x\n")
    assert lint(host, path, "--user-field").status == 1
    refused(lint(host, path), 64, "add --user-field")
    assert lint(host, "/etc/crontab") == (0, b"", "")


def test_files_of_several_hosts_are_compared(host: Oncecron, public_path: Path) -> None:
    """Those of one name, or all."""
    first, second = write(public_path, "a/crontab", JOB), write(public_path, "b/crontab", "")
    assert b"is not in" not in lint(host, first, write(public_path, "other", "1 1 * * * x\n")).out
    other = write(public_path, "b/crontab", "0 2 * * * /bin/pay\n")
    assert lint(host, first, second).out.decode().splitlines() == [
        f"{here}:1: `{job}` is not in {there}; add the line on every host; "
        "if only this host runs it, write `# oncecron: off` above it [missing]"
        for here, there, job in ((first, other, "/bin/bill"), (other, first, "/bin/pay"))
    ]
    names = (write(public_path, "web1", JOB), write(public_path, "web2", "0 3 * * * /bin/bill\n"))
    assert lint(host, *names).status == 0
    assert b"[schedule]" in lint(host, "--compare", *names).out


def test_every_line_may_be_required_to_be_guarded(host: Oncecron, public_path: Path) -> None:
    """For CI."""
    ended = lint(host, "--require-guard", write(public_path, "bare", JOB))
    assert (ended.status, ended.out.count(b"[unguarded]")) == (1, 1)


def test_the_configuration_is_read(host: Oncecron, public_path: Path) -> None:
    """By --config, or where `run` would find it; one that cannot be read is told."""
    path = write(public_path, "often", "* * * * * /usr/local/bin/oncecron run --key k -- x\n")
    assert b"[frequent]" in lint(host, path).out
    config = write(public_path, "oncecron.toml", '[job.k]\nschedule = "* * * * *"\n')
    assert lint(host, "--config", config, path) == (0, b"", "")
    refused(lint(host, "--config", public_path / "none", path), 78, "cannot be read")


def test_sections_that_no_file_uses_are_found(host: Oncecron, public_path: Path) -> None:
    """Of a file that --config names; not of the host's own file, which may be for other crontabs."""
    path = write(
        public_path, "well", "0 2 * * * /usr/local/bin/oncecron run --key bill --no-tick -- x\n"
    )
    config = write(
        public_path, "oncecron.toml", "[job.bill]\nretries = 1\n[job.pay]\nretries = 2\n"
    )
    ended = lint(host, "--config", config, path)
    assert (ended.status, ended.err) == (1, "")
    assert ended.out.decode() == (
        f"{config}:3: no line of the linted files has the key pay, so the section has no effect; correct the key, or "
        "remove the section; if another crontab has this key, name that file too [section]\n"
    )
    host.environment["ONCECRON_CONFIG"] = str(config)
    assert lint(host, path) == (0, b"", "")


def test_what_cannot_be_read_is_refused(host: Oncecron, public_path: Path) -> None:
    """With a status of its own, before anything is printed."""
    refused(lint(host, public_path / "none"), 66, "/none: No such file")
    refused(lint(host, write(public_path, "odd", ODD), "/dev/null"), 66, "/dev/null")
    refused(lint(host, "--nonsense"), 64, "--nonsense")


def test_the_files_of_a_directory_are_read(host: Oncecron, public_path: Path) -> None:
    """In `cron.d` also those that cron does not read, with the reason; not what editors leave."""
    for name in ("app", "app.cron", "app~", ".app"):
        write(public_path / "cron.d", name, "0 2 * * 5#2 root /bin/bill\n")
    ended = lint(host, "--user-field", public_path / "cron.d")
    places = [each.split(": ")[0] for each in ended.out.decode().splitlines()]
    odd = f"{public_path}/cron.d/app"
    assert places == [f"{odd}:1", f"{odd}.cron:1", f"{odd}.cron:1"]
    assert f"{odd}.cron:1: Debian's cron does not read a file with the name".encode() in ended.out


def test_a_link_is_judged_where_cron_finds_it(host: Oncecron, public_path: Path) -> None:
    """By its own name; the lines are those of the file behind it."""
    write(public_path / "repository", "bill.txt", "0 2 * * 5#2 root /bin/bill\n")
    directory = public_path / "cron.d"
    directory.mkdir()
    for name, target in (("bill", "bill.txt"), ("bill.cron", "bill.txt")):
        (directory / name).symlink_to(public_path / "repository" / target)
    ended = lint(host, "--user-field", directory)
    found = [line.split(":")[0].rpartition("/")[2] for line in ended.out.decode().splitlines()]
    assert found == ["bill", "bill.cron", "bill.cron"]
    assert b"cron.d/bill.cron:1: Debian's cron does not read a file with the name" in ended.out
    assert lint(host, "--user-field", *sorted(directory.iterdir())) == ended


def test_sudo_is_root_s_right(host: Oncecron, public_path: Path) -> None:
    """What root's `crontab -l` gives is root's; a file could be anybody's."""
    job = "0 2 * * * /usr/local/bin/oncecron run --key k --no-tick -- sudo -u www /bin/bill\n"
    assert b"[sudo]" in lint(host, write(public_path, "joe", job)).out
    ended = lint(host, text=job.encode())
    assert (b"[sudo]" in ended.out) == (
        subprocess.run(["id", "-u"], capture_output=True, check=True).stdout != b"0\n"
    )


def test_what_wrap_writes_has_no_finding(host: Oncecron, public_path: Path) -> None:
    """Of guards, keys and schedules: commands that need a shell, the same command twice."""
    text = """\
PATH=/usr/bin:/bin
SHELL=/bin/bash
0 2 * * * cd /app && ./bill.sh > /var/log/bill.log 2>&1
* * * * * /bin/poll --once
*/2 * * * * /bin/poll
0 3 * * * /bin/poll
0 4 * * 5 set -o pipefail; sleep $((RANDOM \\% 60)); /bin/report "a b" | mail -s 'of \\%' joe
@daily /bin/a; /bin/b
@reboot /bin/agent
0 5 * * * run-parts /etc/x
# oncecron: key=pay timeout=1h
5 5 1,15 * * /bin/pay
# oncecron: off
0 6 * * * /bin/rotate
0 7 * * * cat%one%two
"""
    path = write(public_path, "crontab", text)
    wrapped = host("crontab", "wrap", path, "--tz", "Europe/Berlin")
    assert wrapped.status == 0
    assert wrapped.out != text.encode()
    assert lint(host, text=wrapped.out).out.decode() == ""


def test_the_cron_of_another_host_is_named(host: Oncecron) -> None:
    """For busybox a percent sign is a letter; an unknown cron is refused before anything is read."""
    text = b"@daily echo 'a%b'\n"
    assert b"[percent]" in lint(host, "--cron", "cronie", text=text).out
    assert lint(host, "--cron", "busybox", text=text) == (0, b"", "")
    refused(lint(host, "--cron", "vixie", text=text), 64, "--cron: 'vixie' is not one of debian")
