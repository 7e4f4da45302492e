"""Which commands need no shell, which are of each host, and the key that is derived from a command."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.config.options import is_key
from oncecron.crontab import words
from oncecron.crontab.naming import derived_key


@pytest.mark.parametrize(
    ("command", "split"),
    [
        ("/opt/x --all  a=b", ["/opt/x", "--all", "a=b"]),
        ("psql -c 'select \"a\"' \t db", ["psql", "-c", 'select "a"', "db"]),
        ("x \"it's\"'$y'z ''", ["x", "it's$yz", ""]),
        (" date +%F ", ["date", "+%F"]),
    ],
)
def test_a_simple_command(command: str, split: list[str]) -> None:
    """Plain words and whole quotes: the same words to us as to a shell."""
    assert words.simple_words(command.encode()) == [word.encode() for word in split]
    assert shlex.split(command) == split


@pytest.mark.parametrize(
    "command",
    [
        *("a; b", "a & b", "a | b", "a && b", "(a)", "a >x", "a <x", "a `b`", "a $(b)", "a $B", "a ${B}", "a 2>&1"),
        *("A=1 b", "if", "for x", "cd /x", "exec a", ". a", "[ -f a ]", "! a", "{ a", "time a", "echo a", "true", ":"),
        *("a *", "a ?", "a [b]", "a {b,c}", "~/a", "a ~", "a # b", "a\\ b", "a 'b", 'a "b', 'a "$b"', 'a "`b`"'),
        *('a "b\\c"', "a !b", "a\nb", "a\rb", "'a' b", "$A b", "", "  ", "a =b", "a \x01", "ä b", "-a b", "%1", "a^b"),
    ],
)  # fmt: skip
def test_what_goes_to_a_shell(command: str) -> None:
    """Whatever means more than itself to any shell, and what a shell has built in."""
    assert words.simple_words(command.encode()) is None


@given(
    st.lists(
        st.sampled_from(
            ["x", " ", "'", '"', "=", "a b", "\t", "%", "-c", "$y", "\\", "é", "/", "#"]
        ),
        max_size=8,
    )
)
def test_words_are_those_of_sh(parts: list[str]) -> None:
    """What is taken for simple, /bin/sh splits into the same words."""
    command = ("true_ " + "".join(parts)).encode()
    found = words.simple_words(command)
    if found is not None:
        script = b"true_() { printf '%s\\0' true_ \"$@\"; }; " + command
        printed = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True)  # fmt: skip
        assert printed.stdout.split(b"\0")[:-1] == found


@given(st.binary().map(lambda raw: raw.replace(b"\0", b"")), st.binary(max_size=3))
def test_a_quoted_word_is_read_back(word: bytes, behind: bytes) -> None:
    """Whatever stands behind it, as long as it cannot be a part of it."""
    assert words.unquoted(words.quoted(word) + b" " + behind, 0) == (word, len(words.quoted(word)))


@pytest.mark.parametrize("shell", ["/bin/sh", "/usr/bin/bash", "/bin/dash", "/usr/bin/zsh", "ksh"])
def test_shells_whose_quotes_are_known(shell: str) -> None:
    """By their names."""
    assert words.is_bourne(shell.encode())


@pytest.mark.parametrize(
    "shell", ["/usr/bin/fish", "/bin/tcsh", "/usr/bin/python3", "/usr/bin/oncecron-shell", ""]
)
def test_programs_whose_quotes_are_not(shell: str) -> None:
    """Among them our own, which guards its lines itself."""
    assert not words.is_bourne(shell.encode())


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("cd / && run-parts --report /etc/cron.daily", "run-parts"),
        ("test -x /usr/sbin/anacron || x", "anacron"),
        ("/usr/bin/oncecron flush", "oncecron"),
        ("/opt/run-parts.sh", None),
        ("pg_dump oncecron", None),
    ],
)
def test_programs_of_each_host(command: str, program: str | None) -> None:
    """As words of the command, whatever their paths."""
    assert words.of_each_host(command.encode()) == program


def test_guarded_by_hand() -> None:
    """Wherever in the command."""
    assert words.is_guarded(b"/usr/bin/oncecron run --key x -- y")
    assert words.is_guarded(b"cd /app && 'oncecron' run --key x -- y")
    assert not words.is_guarded(b"pg_dump oncecron >/srv/x")
    assert not words.is_guarded(b"/opt/oncecron-run x")


def test_off_in_front() -> None:
    """And nowhere else."""
    assert words.is_off(b"ONCECRON=off df")
    assert words.is_off(b" ONCECRON=off\tdf")
    assert not words.is_off(b"ONCECRON=offline df")
    assert not words.is_off(b"df ONCECRON=off ")


# Keys. These never change: a host that derives another key from the same line runs another job.

KEYS = {
    "/opt/app/bill.sh --all": "bill.sh-a2cc2be4",
    "./bill.sh": "bill.sh-e7244479",
    "cd /app && ./bill.sh >>log 2>&1": "bill.sh-d36a38b7",
    "nice -n 19 ionice -c3 restic backup /": "restic-8cf7e0ff",
    "flock -w 10 /run/x -c 'cd /srv && ./import.py'": "import.py-9bbcd8cc",
    "timeout -k 5s 60s sudo -u www-data php artisan schedule:run": "artisan-d92a537a",
    "MAILTO=x A=1 env -i B=2 python3 -m app.job": "app.job-611c10de",
    "[ -x /usr/lib/a ] && if [ ! -d /run ]; then /usr/lib/b/clean; fi": "clean-73fb540b",
    'for f in *.csv; do ssh host load "$f"; done': "ssh-68c57f20",
    "bash -l -c 'cd /app && bundle exec rake x'": "rake-a835e628",
    "sleep $((RANDOM % 60)); $HOME/bin/sync": "sync-c7944763",
    "$CMD": "job-48ae602d",
    "test -e /run/systemd/system || A=1 /usr/lib/e2scrub_all_cron": "e2scrub_all_cron-d6164afb",
    "test -x /usr/bin/certbot -a ! -d /run/systemd && perl -e 'sleep 9'; certbot renew": "certbot-0c6a8194",
    "test -d /srv || sh -c ./make.sh": "make.sh-1b4ed099",
    ">/dev/null 2>&1 ./quiet.sh": "quiet.sh-84ea6055",
    "runuser -l www -c ./bill.sh": "bill.sh-41f43361",
    "su - www -c 'php bill.php'": "bill.php-20e7e311",
    "su -s /bin/sh -c './bill.sh --all' www": "bill.sh-5de98b57",
    "/srv/Büro/lösch.sh": "l--sch.sh-a576e8b5",
    "/bin/" + "x" * 60: "x" * 40 + "-d5826d7a",
    "'/opt/my app/run'": "my-d435c7d1",
    "": "job-00000000",
}


@pytest.mark.parametrize(("command", "key"), KEYS.items())
def test_a_derived_key_never_changes(command: str, key: str) -> None:
    """Not from one version to the next, whatever could be named better."""
    assert derived_key(command.encode()) == key


def test_blanks_around_a_command_do_not_count() -> None:
    """A system crontab keeps some in front."""
    assert derived_key(b"  x y\t") == derived_key(b"x y") != derived_key(b"x  y")


@given(st.binary())
def test_every_command_has_a_key(command: bytes) -> None:
    """One that a store takes."""
    assert is_key(derived_key(command))
    assert derived_key(command, "alice.").startswith("alice.")
