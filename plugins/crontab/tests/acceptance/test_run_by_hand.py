"""`oncecron again`: the line of a key is found in a real crontab, and does by hand what it does under cron."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from answers import refused
from log_of import Store
from servers import CronHost, eventually
from servers.namespaces import Machine
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron
from servers.process import public_directory, remove_directory
from servers.require import program

SPOOL = "/var/spool/cron/crontabs"
SETUP = f"""\
mount -t tmpfs -o mode=755 tmpfs /var/spool/cron
install -d -m 1730 -g crontab {SPOOL}
mount -t tmpfs -o mode=755 tmpfs /etc/cron.d
"""
OF_A_PERSON = {
    "TERM": "xterm", "COLUMNS": "80", "EDITOR": "vi", "LANG": "de_DE.UTF-8", "LC_CTYPE": "C.UTF-8", "USER": "ann",
    "SSH_TTY": "/dev/pts/0", "PWD": "/", "XDG_RUNTIME_DIR": "/run/user/0", "ONCECRON_HOST": "elsewhere",
}  # fmt: skip
"""What a terminal has and cron has not."""


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Give a machine with a spool of its own."""
    program("crontab")
    machine = Machine("web1", ["mount", "uts"], setup=SETUP)
    yield machine
    machine.remove()


@pytest.fixture
def person(machine: Machine, any_store: Store, public_path: Path) -> Oncecron:
    """Give a person at that machine, who has no store in the environment."""
    (public_path / "store").mkdir(mode=0o700, exist_ok=True)
    person = Oncecron(any_store.url, public_path, prefix=machine.prefix, **OF_A_PERSON)
    del person.environment["ONCECRON_STORE"]
    return person


def install(machine: Machine, text: str, where: str = f"{SPOOL}/root") -> None:
    """Write a crontab to its place."""
    group = "root:crontab" if where.startswith(SPOOL) else "root:root"
    script = f"cat >{where}; chown {group} {where}; chmod {600 if where.startswith(SPOOL) else 644} {where}"
    machine.run(["/bin/sh", "-ec", script], input=text)


def line(any_store: Store, rest: str, fields: str = "0 2 * * *") -> str:
    """Return a line with a guard."""
    return f"{fields} {CONSOLE_SCRIPT} run --store {any_store.url} {rest}\n"


def last(person: Oncecron, any_store: Store, key: str) -> tuple[str | None, str, str | None]:
    """Return the tick, the outcome and the cause of the newest execution of a key."""
    told = person("history", key, "--json", "--limit", "1", "--store", any_store.url)
    [newest] = json.loads(told.out)
    return newest["tick"], newest["outcome"], newest["cause"]


def told_last(ended: Ended, words: str) -> None:
    """Check that a usage error ends with a line that tells something, below the lines that it is about."""
    assert (ended.status, ended.out) == (64, b""), ended
    assert ended.err.splitlines()[-1].startswith(f"oncecron: {words}"), ended


# Under cron and by hand

SEEN = (
    "run=$ONCECRON_KEY-$ONCECRON_ATTEMPT; env | sort >{path}/$run; "
    "{{ cat; pwd; umask; echo $0; }} >>{path}/rest-$run"
)
CRONTAB = """\
XDG_STATE_HOME=/run
ONCECRON_STORE={store}
GREETING="two  words"
* * * * * {oncecron} run --key simple {minutely} --starting-deadline 59s -- {path}/job%first%second \\% line
PATH=/usr/local/bin:/usr/bin:/bin
SHELL=/bin/bash
HOME=/usr
LOGNAME=nobody
* * * * * cd lib && : "$(date +\\%F)" && {oncecron} run --key whole {minutely} --shell '{seen}' 2>&1 | cat; {ignored}
SHELL={oncecron}-shell
ONCECRON_KEY_PREFIX=shell.
* * * * * {seen}
"""
IGNORED = "grep SigIgn /proc/self/status >>$(ls -t {path}/rest-whole-* | head -n1)"
"""Which signals the line itself ignores."""
OF_PAM = {
    "environment": "# of all\nPATH=/usr/games\nPROXY='http://proxy:3128'\nexport LOGNAME=me\n"
    "NOTE='a # b'\nLONG=\"one\\\n two\" \n",
    "locale": 'LANG="C.UTF-8"\n',
}
OF_A_RUN = (
    "ONCECRON_ATTEMPT",
    "ONCECRON_EXECUTION_ID",
    "ONCECRON_FENCING_TOKEN",
    "ONCECRON_PLACE",
    "TRACEPARENT",
)
"""What two runs of one tick differ in."""


@pytest.mark.slow
def test_a_job_sees_the_same_under_cron_and_by_hand() -> None:
    """Environment, directory, standard input, umask and shell: of a guarded line, a whole line and oncecron-shell."""
    with ExitStack() as stack:
        path = public_directory("by-hand")
        stack.callback(remove_directory, path)
        seen = SEEN.format(path=path)
        (path / "job").write_text(f"#!/bin/sh\n{seen}\n")
        (path / "job").chmod(0o755)
        store = f"sqlite://{path}/store.db"
        minutely = "--schedule '* * * * *' --tz UTC"
        crontab = CRONTAB.format(
            store=store,
            oncecron=CONSOLE_SCRIPT,
            path=path,
            seen=seen,
            minutely=minutely,
            ignored=IGNORED.format(path=path),
        )
        host = CronHost("web1", crontab)
        stack.callback(host.remove)
        for name, text in OF_PAM.items():
            (path / name).write_text(text)
            (path / name).chmod(0o644)
        host.run(["mount", "--bind", str(path / "environment"), "/etc/environment"])
        host.run(["mount", "--bind", str(path / "locale"), "/etc/default/locale"])
        host.start()
        assert eventually(lambda: _ended(path) >= 3, 130)
        host.stop()
        eventually(lambda: not host.processes(), 30)
        careful = ["/bin/sh", "-c", 'umask 077; exec "$@"', "sh"]
        person = Oncecron(store, path, prefix=[*host.prefix, *careful], **OF_A_PERSON)
        person.environment["XDG_STATE_HOME"] = "/run/user"
        told = json.loads(person("history", "--json").out)
        ticks = {row["key"]: row["tick"] for row in told}
        assert len(ticks) == 3
        for key, tick in ticks.items():
            done = person("again", key, "--tick", tick)
            assert done.status == 0, done
            assert f"running it by hand for tick {tick}, as user root" in done.err
        for key in ticks:
            before, after = (
                (path / f"{key}-{attempt}").read_text().splitlines() for attempt in (1, 2)
            )
            of_both = (
                [each for each in lines if each.partition("=")[0] not in OF_A_RUN]
                for lines in (before, after)
            )
            assert next(of_both) == next(of_both)
            assert {"GREETING=two  words", "LANG=C.UTF-8", "PROXY=http://proxy:3128"} <= {*before}
            rest = [(path / f"rest-{key}-{attempt}").read_text() for attempt in (1, 2)]
            assert rest[0] == rest[1]
        assert (
            (path / "rest-simple-2").read_text().startswith("first\nsecond % line\n/root\n0022\n")
        )
        assert (path / "rest-whole-2").read_text().startswith("/usr/lib\n0022\n/bin/bash\nSigIgn:")
        assert {
            row["cause"]
            for row in json.loads(person("history", "--json").out)
            if row["attempt"] == 2
        } == {"manual"}


def _ended(path: Path) -> int:
    return len([*path.glob("rest-*-1")])


# Which line


def test_the_line_is_found_shown_and_run(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """In one's own crontab: what runs is said, its output is the job's, and the exit status, and who asked."""
    install(
        machine,
        "# a comment\n"
        + line(any_store, "--key bill --schedule '0 2 * * *' --tz UTC -- sh -c 'echo ran; exit 3'"),
    )
    done = person("again", "bill", "--tick", "2026-11-20T02:00Z")
    assert (done.status, done.out) == (3, b"ran\n")
    assert f"the crontab of root, line 2: 0 2 * * * {CONSOLE_SCRIPT} run --store" in done.err
    assert "running it by hand for tick 2026-11-20T02:00Z, as user root in /root" in done.err
    assert last(person, any_store, "bill") == ("2026-11-20T02:00Z", "failed", "manual")
    assert person("again", "bill").status == 3
    tick, *_ = last(person, any_store, "bill")
    assert tick
    assert re.fullmatch(r"20..-..-..T02:00Z", tick)
    assert any_store.executions("bill")[-1].attempt == 1
    assert person("again", "bill", "--tick", tick).status == 3
    assert any_store.executions("bill")[-1].attempt == 2


@pytest.mark.parametrize("rest", ["--no-tick --min-gap 1h", "--tick by-name", ""])
def test_a_line_without_a_schedule_has_its_own_tick(
    machine: Machine, person: Oncecron, any_store: Store, rest: str
) -> None:
    """Without a terminal, too; `--tick` of the command takes the place of what the line has."""
    install(machine, line(any_store, f"--key k {rest} -- echo ran"))
    for _ in range(2):
        assert person("again", "k").out == b"ran\n"
    tick, _, cause = last(person, any_store, "k")
    assert cause == "manual"
    assert tick == {"--tick by-name": "by-name", "--no-tick --min-gap 1h": None}.get(rest, tick)
    assert person("again", "k", "--tick", "2026-11-20T00:00Z").out == b"ran\n"
    assert last(person, any_store, "k")[0] == "2026-11-20T00:00Z"


def test_a_tick_is_named_as_why_reads_it(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """By a time: the first tick on record from its minute on, however long ago --starting-deadline was over."""
    rest = "--key k --schedule '*/5 * * * *' --tz UTC --starting-deadline 1s --catch-up 6h -- printenv ONCECRON_TICK"
    install(machine, line(any_store, rest))
    fired = ("run", "--store", any_store.url, "--key", "k", "--tick")
    person(*fired, "2026-11-20T02:05Z", "--", "true")
    done = person("again", "k", "--tick", "2026-11-20 02:05+00:00")
    assert (done.status, done.out) == (0, b"2026-11-20T02:05Z\n"), done
    first = "the first tick since 2026-11-20T00:00:00+00:00: tick 2026-11-20T02:05Z; to run it: "
    other = person("again", "k", "--tick", "2026-11-20")
    refused(other, 64, f"{first}`oncecron again k --tick 2026-11-20T02:05Z`")
    refused(
        person("again", "k", "--tick", "nonsense"), 64, "is neither a tick on record nor a time"
    )
    assert len(any_store.executions("k")) == 2


def test_a_time_that_the_line_never_has_is_not_run(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """It may be that of another zone, and the job would run once more; what is on record is no mistake."""
    install(
        machine,
        line(
            any_store, "--key k --schedule '0 2 * * *' --tz Europe/Berlin -- printenv ONCECRON_TICK"
        ),
    )
    assert person("again", "k").status == 0
    refused(
        person("again", "k", "--tick", "2026-11-20T02:00Z"),
        64,
        "2026-11-20T02:00Z is no tick of the line, whose schedule is 0 2 * * * Europe/Berlin; "
        "to run the one before it: `oncecron again k --tick 2026-11-20T01:00Z`",
    )
    assert len(any_store.executions("k")) == 1
    assert person("again", "k", "--tick", "2026-11-20T02:00+01:00").out == b"2026-11-20T01:00Z\n"
    fired = ("run", "--store", any_store.url, "--key", "k", "--tick", "2026-11-21T02:00Z", "--")
    person(*fired, "true")
    assert person("again", "k", "--tick", "2026-11-21T02:00Z").out == b"2026-11-21T02:00Z\n"


def test_a_skip_is_said(machine: Machine, person: Oncecron, any_store: Store) -> None:
    """Also without a terminal: a script must not take it for a run."""
    install(machine, line(any_store, "--key k --schedule '@daily' -- echo ran"))
    assert person("again", "k").out == b"ran\n"
    assert person("pause", "k", "--store", any_store.url).status == 0
    done = person("again", "k")
    assert (done.status, done.out) == (0, b"")
    assert "skipped: k is paused" in done.err


@pytest.mark.parametrize(
    "wrong", ["--schedule '@daily' --catch-up soon", "--schedule '0 25 * * *'"]
)
def test_a_wrong_option_of_the_line_names_the_line(
    machine: Machine, person: Oncecron, any_store: Store, wrong: str
) -> None:
    """`again` has no such option: it stands in the crontab."""
    install(machine, line(any_store, f"--key k {wrong} -- echo ran"))
    place, option = "the crontab of root, line 1: ", wrong.split()[-2 if "soon" in wrong else 0]
    for typed in ((), ("--tick", "2026-11-20T02:00Z")):
        refused(person("again", "k", *typed), 64, f"{place}{option}: ")


@pytest.mark.parametrize("where", ["line", "file"])
def test_a_person_does_not_wait(
    machine: Machine, person: Oncecron, any_store: Store, public_path: Path, where: str
) -> None:
    """A line with --failover would start the job after the run that was running has ended well, once more."""
    file = public_path / "config.toml"
    file.write_text('[job.k]\nfailover = true\nwait = "1m"\nspread = "1h"\n')
    file.chmod(0o600)
    waiting = {"line": "--failover --wait 1m --spread 1h", "file": f"--config {file}"}[where]
    text = line(any_store, f"{waiting} --key k --schedule '@daily' -- sh -c 'echo ran; sleep 60'")
    install(machine, text)
    running = person.start("again", "k")
    assert running.process.stdout is not None
    assert running.process.stdout.readline() == b"ran\n"
    done = person("again", "k")
    assert "skipped: k is running on web1" in done.err
    assert "wait until it has ended, or stop it: `oncecron stop k --store " in done.err
    running.process.terminate()
    running.wait()
    assert len(any_store.executions("k")) == 1


def test_a_system_line_is_found(machine: Machine, person: Oncecron, any_store: Store) -> None:
    """In /etc/cron.d, with the user field: by its own user alone, and another one is named."""
    install(
        machine,
        line(any_store, "--key k --schedule '@daily' -- echo ran", "@daily root"),
        "/etc/cron.d/app",
    )
    assert person("again", "k").out == b"ran\n"
    install(machine, line(any_store, "--key k -- echo ran", "0 2 * * * nobody"), "/etc/cron.d/app")
    done = person("again", "k", "--tick", "a b")
    refused(
        done,
        64,
        "/etc/cron.d/app:1 is run by user nobody: `sudo -u nobody oncecron again k --tick 'a b'`",
    )
    assert len(any_store.executions("k")) == 1


def test_root_finds_the_line_of_another_user(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """As the person who is paged is root; that user is named, who runs it."""
    for words in (("--line", "1"), ()):
        install(machine, line(any_store, "--key k -- true") * 2, f"{SPOOL}/nobody")
        done = person("again", "k", *words)
        typed = f" {' '.join(words)}" if words else ""
        where = (
            "the crontab of nobody, line 1 is run by user nobody: `sudo -u nobody oncecron again k"
        )
        refused(done, 64, f"{where}{typed}`")
    install(machine, line(any_store, "--key k -- echo mine"))
    assert person("again", "k").out == b"mine\n"
    assert person("again", "k", "--line", "1").out == b"mine\n"


def test_a_line_whose_key_is_not_plain_to_see_is_named(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """It may be the one; a comment is no line."""
    person("init", "--store", any_store.url)
    install(machine, "# " + line(any_store, "--key k -- true"))
    done = person("again", "k", "--store", any_store.url)
    refused(done, 66, "has a line with key k, and no host has fired key k")
    install(machine, line(any_store, "--wrong --key k -- true"))
    done = person("again", "k", "--store", any_store.url)
    refused(
        done, 66, "key k, unless it is the crontab of root, line 1, whose key is not plain to see"
    )


def test_a_file_that_others_may_change_is_not_run(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """Cron does not run it either: its owner could let root run anything."""
    text = line(any_store, "--key k -- echo ran", "@daily root")
    for words in (["chown", "nobody"], ["chmod", "666"]):
        install(machine, text, "/etc/cron.d/app")
        machine.run([*words, "/etc/cron.d/app"])
        refused(person("again", "k"), 66, "/etc/cron.d/app must be owned by root")


def test_several_lines_are_shown_and_one_is_chosen(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """Of one's own crontab by its number, of another file by its name, too."""
    install(
        machine, line(any_store, "--key k -- echo one") + line(any_store, "--key k -- echo two")
    )
    install(machine, line(any_store, "--key k -- echo three", "@daily root"), "/etc/cron.d/app")
    done = person("again", "k", "--tick", "t")
    told_last(done, "3 lines have key k; choose one of them: `oncecron again k --tick t --line 1`")
    assert "the crontab of root, line 2: 0 2 * * * " in done.err
    assert "/etc/cron.d/app:1: @daily root " in done.err
    for name, said in (("1", b"one"), ("2", b"two"), ("/etc/cron.d/app:1", b"three")):
        assert person("again", "k", "--line", name).out == said + b"\n"
    told_last(person("again", "k", "--line", "9"), "--line 9: this line does not have key k")


def test_a_host_without_the_line_names_those_that_have_it(
    person: Oncecron, any_store: Store
) -> None:
    """And the command as it is on record; a key that nobody fires is unknown."""
    fired = ("run", "--store", any_store.url, "--key", "bill", "--tick", "t1", "--", "true")
    person.environment["ONCECRON_HOST"] = "web7"
    person(*fired)
    done = person("again", "bill", "--store", any_store.url)
    where = "no crontab of this host that root may read has a line with key bill; run it where it has one: "
    refused(done, 66, f"{where}it is fired by web7 (last at ")
    assert (
        f"`oncecron run --key bill --tick t1 --again --store {any_store.url} -- true`" in done.err
    )
    refused(person("again", "bil", "--store", any_store.url), 66, "did you mean bill?")
    refused(person("again", "bill"), 66, "which hosts fire it is not known: no store is configured")


def test_who_ran_it_is_named(person: Oncecron, public_path: Path) -> None:
    """Where the line is in a crontab that is not one's own."""
    theirs = public_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    url = f"sqlite://{theirs}/store.db"
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    nobody = Oncecron(url, theirs, prefix=[*person.prefix, *as_nobody])
    assert nobody.run("k", "--tick", "t", "--", "true").status == 0
    for path in (theirs, *theirs.iterdir()):  # root reads no store of others
        os.chown(path, 0, 0)
    told = "; user nobody ran it: `sudo -u nobody oncecron again k --tick t --store "
    refused(person("again", "k", "--tick", "t", "--store", url), 66, told)


# How it runs


def test_the_store_of_the_line_wins(
    machine: Machine, person: Oncecron, any_store: Store, public_path: Path
) -> None:
    """One that is typed counts for a line without a store."""
    other = f"sqlite://{public_path}/store/other.db"
    install(machine, line(any_store, "--key k -- echo ran"))
    done = person("again", "k", "--store", other)
    assert done.out == b"ran\n"
    instead = (
        f"has a store of its own, {any_store.url}, which is used instead of the one that is typed"
    )
    assert instead in done.err
    assert instead in person("again", "k", "--namespace", "other").err
    assert "instead of" not in person("again", "k", "--store", any_store.url).err
    assert len(any_store.executions("k")) == 3
    install(machine, f"@daily {CONSOLE_SCRIPT} run --key k -- echo ran\n")
    done = person("again", "k")
    assert (done.status, "no store is configured" in done.err) == (78, True), done
    assert person("again", "k", "--store", any_store.url).out == b"ran\n"
    assert len(any_store.executions("k")) == 4


def test_the_environment_is_not_that_of_the_terminal(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """Variables above the line count, those below it do not."""
    text = "A=above\n" + line(any_store, "--key k --shell 'env; exit 0'") + "B=below\n"
    install(machine, text)
    seen = dict(each.split("=", 1) for each in person("again", "k").out.decode().splitlines())
    assert (seen["A"], seen["HOME"], seen["LOGNAME"], seen["PATH"]) == (
        "above",
        "/root",
        "root",
        "/usr/bin:/bin",
    )
    assert not {*OF_A_PERSON, "B"} - {"PWD", "LANG"} & {*seen}


def test_ctrl_c_ends_the_job(
    machine: Machine, person: Oncecron, any_store: Store, public_path: Path
) -> None:
    """Which is in the foreground of the terminal: its status is that of the job."""
    job = public_path / "job"
    job.write_text(
        "#!/bin/sh\ntrap 'echo ended; exit 5' INT\necho begun\nwhile :; do sleep 0.1; done\n"
    )
    job.chmod(0o755)
    install(machine, line(any_store, f"--key k --tick t -- {job}"))
    running = person.start("again", "k")
    assert running.process.stdout is not None
    assert running.process.stdout.readline() == b"begun\n"
    os.killpg(running.process.pid, signal.SIGINT)  # as a terminal does
    ended = running.wait()
    assert (ended.status, ended.out) == (5, b"ended\n")


def test_a_dry_run_starts_nothing(machine: Machine, person: Oncecron, any_store: Store) -> None:
    """Of the guard alone: what else is on the line would be done."""
    install(machine, line(any_store, "--key k --tick t -- echo ran"))
    done = person("again", "k", "--dry-run")
    assert b"would start now" in done.out
    assert any_store.executions("k") == []
    install(machine, line(any_store, "--key k --tick t -- true; touch /ran"))
    refused(
        person("again", "k", "--dry-run"), 64, "does more than `oncecron run`, which would be done"
    )


def test_each_runs_again(machine: Machine, person: Oncecron, any_store: Store) -> None:
    """Its list is read anew."""
    words = f"each --store {any_store.url} --key k --schedule '@daily' --tz UTC --items 'echo a; echo b' -- echo"
    install(machine, f"@daily {CONSOLE_SCRIPT} {words}\n")
    assert sorted(person("again", "k", "--tick", "2026-11-20T00:00Z").out.split()) == [b"a", b"b"]


def test_a_line_with_two_guards_is_left_to_people(
    machine: Machine, person: Oncecron, any_store: Store
) -> None:
    """Both would run, or the wrong one."""
    other = line(any_store, "--key other -- true", "").strip()
    mine = line(any_store, "--key k --tick t -- true", "").strip()
    for both in (f"{mine}; {other}", f"{other}; sh -c '{mine}'"):
        install(machine, f"@daily {both}\n")
        done = person("again", "k")
        refused(done, 64, "has oncecron several times, or within quotes or a substitution")
        assert "; run it by hand, with --again -v behind the right `oncecron run`" in done.err
