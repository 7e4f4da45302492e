"""Secrets in the words of a command: what is recorded, mailed and logged instead of them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from crontabs import commands
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.masking import _PROGRAMS, masked_line, masked_words
from oncecron.core.secrets import may_hold_secret
from oncecron.run.program import quoted_line, shown_words

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "hunter2"
WORDS = {
    "postgresql://u:{}@h/d psql": "postgresql://u:***@h/d psql",
    "psql postgresql://u:{}@h/d": "psql postgresql://u:***@h/d",
    "psql postgresql:/u:{}@h/d": "psql postgresql:/u:***@h/d",
    "psql 'host=h password={} dbname=d'": "psql 'host=h password=***'",
    "env PGPASSWORD={} pg_dump d": "env PGPASSWORD=*** pg_dump d",
    "AWS_SECRET_ACCESS_KEY={} aws s3 ls": "AWS_SECRET_ACCESS_KEY=*** aws s3 ls",
    "STRIPE_KEY={} ./bill": "STRIPE_KEY=*** ./bill",
    "a --password={} b": "a --password=*** b",
    "a --password {} b": "a --password *** b",
    "a --password --token {} b": "a --password *** *** b",
    "keytool -storepass {} -list": "keytool -storepass *** -list",
    "mysqldump -p{} db": "mysqldump -p*** db",
    "sudo -u mysql nice -n 9 mysql -p{} db": "sudo -u mysql nice -n 9 mysql -p*** db",
    "curl -u user:{} https://h": "curl -u user:*** https://h",
    "curl -fsSLuuser:{} https://h": "curl -fsSLuuser:*** https://h",
    "curl --user user:{} https://h": "curl --user user:*** https://h",
    "curl -H 'Authorization: Bearer {}' https://h": "curl -H 'Authorization: Bearer ***' https://h",
    "curl -H 'X-Api-Key: {}' https://h": "curl -H 'X-Api-Key: ***' https://h",
    "curl -b session={} https://h": "curl -b *** https://h",
    "curl 'https://h/ping?job=5&token={}&x'": "curl 'https://h/ping?job=5&token=***'",
    'curl -d \'{{"user":"a","password":"{}"}}\' h': 'curl -d \'{{"user":"a","password":***\' h',
    "git clone https://{}@github.com/a/b": "git clone https://***@github.com/a/b",
    "redis-cli -a {} ping": "redis-cli -a *** ping",
    "sshpass -p {} ssh h ls": "sshpass -p *** ssh h ls",
    "docker login -p {} registry": "docker login -p *** registry",
    "openssl enc -k {} -in x": "openssl enc -k *** -in x",
    "sqlplus u/{}@db @bill.sql": "sqlplus u/***@db @bill.sql",
    "psql -c \"alter role a password '{}'\"": "psql -c 'alter role a password ***'",
    "oncecron run --store redis://:{}@h --key x -- y": "oncecron run --store redis://:***@h --key x -- y",
    "find . -exec curl -u a:{} {{}} +": "find . -exec curl -u a:*** {{}} +",
}
"""Commands with a secret, and what is shown of them."""
HARMLESS = (
    *("./bill.sh --all", "tar czf /backup/a.tgz --exclude=x /srv", "docker run -p 80:80 mysql"),
    *(
        "find /var/lib/mysql -print",
        "curl -fsS https://hc-ping.com/abc?rid=5",
        "oncecron run --key a -- b",
    ),
    *("rsync -a a@b:/x /y", "psql postgresql://cron@h/d -f a.sql", "mysql -u a --password-file=/x"),
    *(
        "scp -P 22 a b:c",
        "sh -c 'cd /srv && ./bill \"a b\" >>log'",
        "a --tokenizer x",
        "restic -r s3:h/b backup",
    ),
)


@pytest.mark.parametrize(("command", "shown"), WORDS.items())
def test_what_is_recorded(command: str, shown: str) -> None:
    """The secret is missing; everything that tells which job it was is there."""
    words = shlex.split(command.format(SECRET))
    assert masked_words(words) == shlex.split(shown.format())
    assert words == shlex.split(command.format(SECRET))  # the job gets its own words


@pytest.mark.parametrize(("command", "shown"), WORDS.items())
@pytest.mark.parametrize(
    "outer",
    [
        *(
            ["sh", "-c", "{}"],
            ["bash", "-lc", "cd /srv && {} | gzip >x"],
            ["a", "--shell", "{}; b"],
        ),
        *(
            ["sh", "-c", "x $({}) y"],
            ["sh", "-c", "x `{}`"],
            ["sh", "-c", "( {} ) 2>&1"],
            ["eval", "{}"],
        ),
    ],
)
def test_a_line_within_a_command(outer: list[str], command: str, shown: str) -> None:
    """As a shell divides it, and also within a further shell."""
    line = command.format(SECRET)
    words = [word.replace("{}", line) for word in outer]
    assert SECRET not in repr(masked_words(words))
    assert "***" in repr(masked_words(words))
    again = ["sh", "-c", f"nice sh -c {shlex.quote(words[-1])}"]
    assert SECRET not in repr(masked_words(again))
    remote = ["ssh", "host", words[-1]]
    assert SECRET not in repr(masked_words(remote))
    if outer[-1] == "{}":
        assert shlex.split(masked_words(words)[-1]) == shlex.split(shown.format())


@pytest.mark.parametrize("command", HARMLESS)
def test_what_has_no_secret_stays_as_it_is(command: str) -> None:
    """A record that hides everything tells nothing."""
    assert masked_words(shlex.split(command)) == shlex.split(command)
    assert masked_line(command) == command


@pytest.mark.parametrize(
    "line",
    [
        *(
            f"mysqldump -p'{SECRET} b",
            f"a --password={SECRET} 'x",
            f'PGPASSWORD="{SECRET} b',
            f"a $(curl -u a:{SECRET}",
        ),
        *(
            f"psql postgresql://u:p {SECRET}@h/d",
            f"cat <<<{SECRET}",
            f"a # token={SECRET}",
            f"a --token='x'{SECRET}",
        ),
    ],
)
def test_a_line_that_is_wrong(line: str) -> None:
    """An open quote, a blank in the password: too much is hidden rather than too little."""
    for words in (["sh", "-c", line], [line], line.split(" ")):
        assert SECRET not in repr(masked_words(words)) or words == line.split(" ")
    assert SECRET not in masked_line(line)


PASSWORDS = st.lists(
    st.sampled_from([*"%/@?#&:=+\"\\ ,;|()$`<>*!~{}[]\t'", "ä", "a1", "$(", "${X}"]), max_size=5
).map(lambda signs: "Xq7Vd9" + "".join(signs) + "Zk3Wm8")
PLACES: list[Callable[[str], list[str]]] = [
    lambda secret: [f"PGPASSWORD={secret}", "psql"],
    lambda secret: ["a", f"--password={secret}", "b"],
    lambda secret: ["a", "--password", secret, "b"],
    lambda secret: ["mysql", f"-p{secret}"],
    lambda secret: ["curl", "-u", f"u:{secret}", "h"],
    lambda secret: ["curl", "-H", f"Authorization: Bearer {secret}", "h"],
    lambda secret: ["curl", "-H", f"X-Api-Key: {secret}", "h"],
    lambda secret: ["psql", f"postgresql://u:{secret}@h/d"],
    lambda secret: ["psql", f"--dbname=postgresql://u:{secret}@h/d"],
    lambda secret: ["psql", f"postgresql://u@h/d?password={secret}"],
    lambda secret: ["psql", f"host=h password={secret}"],
    lambda secret: ["redis-cli", "-u", f"redis://u:{secret}@h"],
    lambda secret: ["redis-cli", "-a", secret],
    lambda secret: ["oncecron", "run", "--store", f"postgresql://u:{secret}@h/d", "--", "x"],
]


@given(st.sampled_from(PLACES), PASSWORDS, st.sampled_from([0, 1, 2, 3]))
def test_no_half_of_a_password_is_recorded(
    place: Callable[[str], list[str]], secret: str, depth: int
) -> None:
    """Whatever its letters, in the words of the command or in a shell within a shell."""
    words = place(secret)
    for _ in range(depth):
        words = ["sh", "-c", f"cd /srv && {shlex.join(words)} >log"]
    recorded = quoted_line(shown_words(words, "masked"))
    assert "Xq7Vd9" not in recorded
    assert "Zk3Wm8" not in recorded


@given(commands())
def test_a_command_without_a_mark_has_no_secret(command: bytes) -> None:
    """The cheap check of a firing is right; and no command is too strange."""
    line = command.decode("utf-8", "surrogateescape")
    shown = masked_line(line)
    assert masked_line(shown) == shown
    if not may_hold_secret(line):
        assert masked_words(["sh", "-c", line]) == ["sh", "-c", line]


def test_every_known_program_is_a_mark() -> None:
    """Else its options would never be looked at."""
    assert [name for name in _PROGRAMS if not may_hold_secret(name) and name != "find"] == []


def test_a_very_long_or_deep_line_is_hidden() -> None:
    """It must not cost a firing a second."""
    assert masked_line("a 'token=x' " * 10_000) == "***"
    line = "echo a token=x"
    for _ in range(9):
        line = f"sh -c {shlex.quote(line)}"
    assert "token=x" not in masked_line(line)


@pytest.mark.parametrize(
    ("how", "recorded"),
    [
        ("full", f"sh -c 'psql postgresql://u:{SECRET}@h/d'"),
        ("masked", "sh -c 'psql postgresql://u:***@h/d'"),
        ("program", "sh"),
    ],
)
def test_how_much_is_recorded(how: str, recorded: str) -> None:
    """By --record-command."""
    words = ["sh", "-c", f"psql postgresql://u:{SECRET}@h/d"]
    assert quoted_line(shown_words(words, how)) == recorded
    assert words[2].endswith(f":{SECRET}@h/d")


def test_a_whole_line_as_one_word_is_no_program() -> None:
    """Its name ends at the first blank."""
    line = f"psql postgresql://u:{SECRET}@h/d"
    assert shown_words([line], "program") == ["psql"]
    assert shown_words([line], "masked") == ["psql postgresql://u:***@h/d"]
    assert shown_words([""], "program") == [""]
