"""The recipes, as far as they can be run without a running systemd, a cluster or the other program."""

import email.policy
import json
import re
import shlex
import subprocess
from datetime import datetime
from itertools import islice
from pathlib import Path

import pytest
from log_of import SQLiteLog
from servers import Journal, assert_exclusive, job
from servers.oncecron import CONSOLE_SCRIPT, Oncecron
from servers.require import program

from oncecron.config import run_parser
from oncecron.host.local_time import next_ticks
from oncecron.run.spec import key_of
from oncecron_crontab.lint import LintedCrontab, lint
from oncecron_crontab.scanner import scan

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
UNITS = dict(
    re.findall(
        r"^```ini\n# /etc/systemd/system/(\S+)\n(.*?)^```$",
        "\n".join(
            (RECIPES / page).read_text(encoding="utf-8") for page in ("systemd.md", "daemon.md")
        ),
        re.MULTILINE | re.DOTALL,
    )
)
(MANIFEST,) = re.findall(
    r"^```yaml\n(.*?)^```$",
    (RECIPES / "kubernetes.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
LABEL = "metadata.labels['batch.kubernetes.io/job-name']"


def setting(text: str, name: str) -> str:
    """Return the value of a setting that a unit has once."""
    (found,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    return str(found)


def read(text: str) -> object:
    """Return a manifest as YAML has it, of the little that is used: blocks, `- `, JSON in one line, plain texts."""
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines()]
    found, rest = _read_block(lines)
    assert not rest
    return found


def _read_block(lines: list[tuple[int, str]]) -> tuple[object, list[tuple[int, str]]]:
    indent = lines[0][0]
    mapping: dict[str, object] = {}
    sequence: list[object] = []
    while lines and lines[0][0] == indent:
        (_, text), *lines = lines
        if text.startswith("- "):
            item, lines = _read_block([(indent + 2, text[2:]), *lines])
            sequence.append(item)
            continue
        name, _, value = text.partition(": ")
        if text.endswith(":"):
            mapping[text[:-1]], lines = _read_block(lines)
        else:
            mapping[name] = json.loads(value) if value[0] in '"[' else value
    assert not (mapping and sequence)
    return mapping or sequence, lines


def hosts(public_path: Path) -> tuple[SQLiteLog, list[Oncecron]]:
    """Return a store and two hosts that share it."""
    store = SQLiteLog(public_path / "store" / "oncecron.db")
    (public_path / "store").mkdir(mode=0o700, exist_ok=True)
    return store, [Oncecron(store.url, public_path, name) for name in ("host-a", "host-b")]


def test_systemd_accepts_the_units(public_path: Path) -> None:
    """With a program in the place of ours, which is not installed there."""
    for name, text in UNITS.items():
        (public_path / name).write_text(text.replace("/usr/bin/oncecron", "/bin/true"))
    assert sorted(UNITS) == [
        "billing-nightly.service",
        "billing-nightly.timer",
        "scheduler.service",
    ]
    done = subprocess.run(
        [program("systemd-analyze"), "verify", *(public_path / name for name in UNITS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("base", ["2026-11-22", "2027-03-27", "2027-10-30"])
def test_the_timer_and_the_schedule_are_one_time(base: str) -> None:
    """Also through both changes of the clock."""
    calendar = setting(UNITS["billing-nightly.timer"], "OnCalendar")
    done = subprocess.run(
        [program("systemd-analyze"), "calendar", f"--base-time={base} 12:00:00 UTC", "--iterations=9", calendar],
        capture_output=True, text=True, check=True, env={"TZ": "UTC", "PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )  # fmt: skip
    times = re.findall(
        r"(?:elapse|Iter(?:\.|ation) #\d+): \w+ (\S+ \S+) UTC$", done.stdout, re.MULTILINE
    )
    given = run_parser.parse_run(command_of_the_unit()[2:])
    assert given is not None
    start = datetime.fromisoformat(f"{base}T12:00+00:00").timestamp()
    ticks = next_ticks(given.given["schedule"], given.given["tz"], start)
    assert len(times) == 9
    assert [f"{time[:10]}T{time[11:16]}Z" for time in times] == [t.text for t in islice(ticks, 9)]


def command_of_the_unit() -> list[str]:
    """Return the words of ExecStart=, whose quotes systemd reads as a shell does."""
    start = setting(UNITS["billing-nightly.service"], "ExecStart")
    assert not set('$%\\"') & set(start)
    return shlex.split(start)


def test_the_unit_s_command_runs_once(public_path: Path, journal: Journal) -> None:
    """On two hosts, for one tick."""
    words = command_of_the_unit()
    assert (words[0], words[-1]) == ("/usr/bin/oncecron", "/usr/local/bin/bill.sh")
    store, both = hosts(public_path)
    for host in both:
        assert host(*words[1:-1], *job(journal, "--beats")) == (0, b"", "")
    assert_exclusive(journal)
    assert len(journal.starts()) == 1
    (execution,) = store.executions("billing-nightly")
    assert execution.tick in {f"{execution.tick[:10]}T0{hour}:00Z" for hour in (2, 3)}  # type: ignore[index]
    assert [skip.reason for skip in store.skips("billing-nightly")] == ["done"]


def test_the_manifest_s_command_runs_once_for_a_job_s_name(
    public_path: Path, journal: Journal
) -> None:
    """Two pods of one Job are two hosts of one tick; the next Job is another tick."""
    manifest = read(MANIFEST)
    assert isinstance(manifest, dict)
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "CronJob")
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    named = {each["name"]: each for each in container["env"]}
    assert named["JOB_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == LABEL
    assert named["ONCECRON_STORE_FILE"]["value"].startswith(
        container["volumeMounts"][0]["mountPath"]
    )
    assert container["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    words = container["command"]
    assert (words[0], words[-1], container["args"]) == ("oncecron", "--", ["/app/bill.sh"])
    store, both = hosts(public_path)
    file = public_path / "address"
    file.write_text(store.url)
    names = [f"{manifest['metadata']['name']}-{29_500_000 + 1440 * night}" for night in range(5)]
    for name in names:
        for number, host in enumerate(both):
            host.environment["ONCECRON_HOST"] = (
                f"{name}-x7k{number}"  # each Job has pods of its own
            )
            host.environment["ONCECRON_STORE_FILE"] = str(file)
            host.environment.pop("ONCECRON_STORE", None)
            arguments = [word.replace("$(JOB_NAME)", name) for word in words[1:]]
            assert host(*arguments, *job(journal, "--beats")) == (0, b"", "")
    assert_exclusive(journal)
    assert [each.tick for each in store.executions(words[3])] == names
    assert both[0]("check", "--silent-after", "0s").status == 0


BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AUTO = " run --key auto "


@pytest.mark.parametrize("name", ["ansible", "django", "rails-whenever"])
def test_the_derived_keys_of_a_recipe_are_those_of_its_lines(name: str) -> None:
    """Each line with `--key auto` has its key in the text."""
    text = (RECIPES / f"{name}.md").read_text(encoding="utf-8")
    lines = [
        line
        for kind, block in BLOCKS.findall(text)
        if kind == "crontab"
        for line in block.splitlines()
        if AUTO in line
    ]
    assert lines
    for line in lines:
        words = shlex.split(line.partition(" # ")[0].partition(" run ")[2])
        parsed = run_parser.parse_run(words)
        assert parsed is not None
        assert f"`{key_of(parsed)}`" in text


def test_the_tasks_of_ansible_give_the_lines_that_are_shown() -> None:
    """As the cron module writes them: a comment with the name, then the line."""
    text = (RECIPES / "ansible.md").read_text(encoding="utf-8")
    blocks = dict(reversed(BLOCKS.findall(text)))  # the first of each kind
    tasks = read(blocks["yaml"])
    assert isinstance(tasks, list)
    written = ""
    for task in tasks:
        job_of_it = task["ansible.builtin.cron"]
        times = [job_of_it.get(name, "*") for name in ("minute", "hour", "day", "month", "weekday")]
        written += f"#Ansible: {job_of_it['name']}\n"
        written += f"{' '.join(times)} {job_of_it['user']} {job_of_it['job']}\n"
    assert blocks["crontab"] == written
    crontab = LintedCrontab("billing", scan(written.encode(), system=True))
    assert lint([crontab], required=True) == []


def test_the_report_by_mail_is_a_mail_with_the_page(public_path: Path) -> None:
    """Of the recipe's own script: its subject and its text say what is wrong, and the page is attached whole."""
    script = dict(BLOCKS.findall((RECIPES / "report-by-mail.md").read_text(encoding="utf-8")))["sh"]
    (body,) = re.findall(r"<<'END'\n(.*?)^END$", script, re.MULTILINE | re.DOTALL)
    mail, sendmail = public_path / "mail", public_path / "sendmail"
    sendmail.write_text(f"#!/bin/sh\ncat >{mail}\n")
    sendmail.chmod(0o755)
    program_path = public_path / "mail-report"
    body = body.replace("/usr/bin/oncecron", str(CONSOLE_SCRIPT))
    program_path.write_text(body.replace("/usr/sbin/sendmail", str(sendmail)))
    program_path.chmod(0o755)
    store, (host, _) = hosts(public_path)
    config = public_path / ".config" / "oncecron" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'store = "{store.url}"\n')
    host.run("billing", "--tick", "1", "--", "false")
    assert host.run("nightly-report", "--tick", "1", "--", program_path) == (0, b"", "")
    message = email.message_from_bytes(mail.read_bytes(), policy=email.policy.default)
    text, page = message.iter_parts()
    assert (message["To"], message["Subject"]) == ("ops@example.com", "oncecron: 1 failed")
    assert text.get_content().startswith("ONCECRON CRITICAL: billing failed (exit status 1); ")
    assert page.get_filename() == "oncecron.html"
    assert page.get_content().startswith("<!DOCTYPE html>")
    assert page.get_content().rstrip().endswith("</html>")
