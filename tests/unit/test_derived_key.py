"""Keys that are derived from commands: the same on every host, and readable in the log."""

import re
from pathlib import Path

import pytest
from crontabs import EXAMPLES, commands
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecron.config.options import is_key
from oncecron.core.derived_key import derived_key
from oncecron.core.shell_words import canonical, simple_words

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "crontabs.md"

# These never change: a host that derives another key from the same line runs another job.

KEYS = {
    # the last path, or the first word
    "/opt/app/bill.sh --all": "bill.sh-a2cc2be4",
    "./bill.sh": "ann.bill.sh-e7244479",
    "cd /app && ./bill.sh >>log 2>&1": "bill.sh-d36a38b7",
    "nice -n 19 flock -n /run/x /opt/bill": "bill-7c1e0f1d",
    "php /srv/app/artisan schedule:run": "artisan-d2663ce0",
    "/usr/bin/rsync -a /srv/data/ backup:/srv/data/": "data-e754a9cd",
    "nice -n 19 restic backup /": "nice-9817011e",
    "pg_dump app | gzip >/backup/app.gz": "ann.pg_dump-37c5a853",
    "A=1 MAILTO=x report": "ann.report-31b85b31",
    "bash -lc 'cd /srv && ./make.sh'": "make.sh-236f5c12",
    "su - www -c 'php /srv/bill.php'": "bill.php-0aaaca3b",
    "[ -x /usr/lib/a ] && if [ ! -d /run ]; then /usr/lib/b/clean; fi": "clean-73fb540b",
    "sleep $((RANDOM % 60)); $HOME/bin/sync": "ann.sync-c7944763",
    "curl -fsS -o /dev/null https://h/ping": "curl-709bb103",
    ">/dev/null 2>&1 ./quiet.sh": "ann.quiet.sh-84ea6055",
    # letters
    "/srv/Büro/lösch.sh": "l-sch.sh-a576e8b5",
    "/bin/" + "x" * 60: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-d5826d7a",
    "'/opt/my app/run'": "run-d435c7d1",
    "$CMD": "ann.CMD-48ae602d",
    "{ date; df; }": "ann.job-ed2d4631",
    "x 'y": "ann.x-449e6a72",
    "": "ann.job-00000000",
}


@pytest.mark.parametrize(("command", "key"), KEYS.items())
def test_a_derived_key_never_changes(command: str, key: str) -> None:
    """Not from one version to the next, whatever could be named better."""
    assert derived_key(command.encode(), None, lambda: "ann") == key


def test_the_documentation_shows_keys_that_are_derived() -> None:
    """Of commands of ann."""
    rows = re.findall(r"^\| `(.+?)`[^|]* \| `(.+)` \|$", DOCUMENTATION.read_text(), re.MULTILINE)
    assert len(rows) == 4
    for command, key in rows:
        assert derived_key(command.encode(), None, lambda: "ann") == key


@pytest.mark.parametrize(
    "commands",
    [
        ("x y", "  x y\t", "x  'y'"), ("x; y", " x;  y "), ("/a | b", "/a  |\tb"), ("x 'y", " x 'y\n"),
    ],
)  # fmt: skip
def test_blanks_do_not_count(commands: tuple[str, ...]) -> None:
    """Nor do quotes where no shell is needed; within quotes a blank is a letter of the word."""
    assert len({derived_key(command.encode()) for command in commands}) == 1
    assert derived_key(b"x 'a b'") != derived_key(b"x 'a  b'")
    assert derived_key(b"x; y 'a'") != derived_key(b"x; y 'b'")


@pytest.mark.parametrize(
    "command",
    [
        *("~/bin/x", "$HOME/bin/x", '"${HOME}/bin/x"', "/bin/x >>~/log", "/bin/x $USER ${LOGNAME:-y}"),
        *("cd && x", "cd ~ && x", "cd app && x", "cd app/bin && /bin/x", "./x", "bin/x", "nice bin/x", "sh -c './x y'"),
        *("x", "php artisan x", "python backup.py", "./venv/bin/python /srv/x.py", "/bin/a; ./b", "pg_dump app >/x"),
    ],
)  # fmt: skip
def test_a_command_that_may_differ_has_the_user_s_name(command: str) -> None:
    """The same line of two users may be two jobs; a prefix takes the name's place, also an empty one."""
    keys = [derived_key(command.encode(), None, lambda name=name: name) for name in ("ann", "bob")]  # type: ignore[misc]
    bare = derived_key(command.encode(), "")
    assert keys == [f"ann.{bare}", f"bob.{bare}"]
    assert derived_key(command.encode(), "x/", lambda: "ann") == f"x/{bare}"


@pytest.mark.parametrize(
    "command",
    [
        *("/usr/local/bin/x", "cd /srv && ./x", "cd $APP/x && ./x", "python /srv/x.py", "bash -c 'cd /srv; ./x'"),
        *("/bin/x --to=a/b c/d=e", "/bin/rsync /srv/x host:y/z", "x /srv/y https://h/z", "[ -x /bin/x ] && x"),
    ],
)  # fmt: skip
def test_any_other_command_has_one_key_for_all_users(command: str) -> None:
    """It is the same file for each."""
    assert derived_key(command.encode(), None, lambda: "ann") == derived_key(command.encode(), "")


def test_a_user_whose_name_no_key_can_have() -> None:
    """Has one with dashes."""
    assert derived_key(b"~/x", None, lambda: "EX\\jörg$").startswith("EX-j-rg.x-")


@pytest.mark.parametrize(
    "command",
    [
        *("PGPASSWORD='hunter2 b' bill", "PGPASSWORD=\"a hunter2\"'x hunter2' bill", "P=a\\ hunter2 bill"),
        *("sh -c 'X=\"a hunter2\" bill'", "export X='hunter2 b'; bill", "X='hunter2;b' Y='&hunter2' bill"),
        *("sudo -p hunter2 bill", "env X='a/hunter2' bill", "PGPASSWORD='hunter2", "X=/a/hunter2 bill"),
        *("curl https://hooks.slack.com/services/hunter2", "mysql -p/hunter2 a", "a --password=/b/hunter2"),
    ],
)  # fmt: skip
def test_a_derived_key_has_no_part_of_a_value(command: str) -> None:
    """It is in every record, and in the mails of cron."""
    assert "hunter2" not in derived_key(command.encode())


@given(
    st.one_of(
        st.binary(),
        commands(),
        st.lists(st.sampled_from(sorted(KEYS))).map(lambda all_: " ".join(all_).encode()),
    )
)
@settings(max_examples=EXAMPLES)
def test_every_command_has_a_key(command: bytes) -> None:
    """One that a store takes, the same for each way to write the command."""
    key = derived_key(command, None, lambda: "ann")
    assert is_key(key)
    assert derived_key(command, "alice.").startswith("alice.")
    assert derived_key(canonical(command), None, lambda: "ann") == key
    if words := simple_words(command):
        assert simple_words(canonical(command)) == words
