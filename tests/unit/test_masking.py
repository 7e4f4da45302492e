"""No password is shown: in the address of a store, in a message, or in what is recorded of a command."""

import os
import shlex
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from crontabs import commands
from hypothesis import given
from hypothesis import strategies as st

from oncecron.config.options import STORE_OPTIONS
from oncecron.config.settings import Settings
from oncecron.core.errors import OncecronError
from oncecron.core.masking import is_secret_name, masked, masked_line, masked_words
from oncecron.host import stderr
from oncecron.run.program import quoted_line, shown_words
from oncecron.run.spool import Spool, spool_of
from oncecron.stores.address import as_role, command_line, has_password, parse_address
from oncecron.stores.postgres import address as postgres
from oncecron.stores.postgres.client import check
from oncecron.stores.postgres.reader import PostgresReader
from oncecron.stores.redis import explain
from oncecron.stores.redis.resp import ReplyError

# Addresses and messages

HALVES = ("Xq7Vd9", "Zk3Wm8")
"""What no message may contain; a sign that somebody forgot to escape is between the two."""
SIGNS = ("", *"%/@?#&:=+'\"\\ ,;[]\t\n", "%zz", "%2", "ä", "://", "&&", "'\"", " = ")
BODIES = (
    *("u:{}@h/d", ":{}@h/d", "u:{}@h", "u:{}@h:5432/d?sslmode=require", "u:{}@a:1,b:2/d"),
    *("u:x@h/d?password={}", "h/d?password={}&sslmode=require", "h:1/d?user=u&password={}"),
    *("h/d?pass={}", "h:1/d?pwd={}", "u@h/d?passwd={}", "u@h/d?pasword={}", "h/d?secret={}"),
    *("h/d?sslpassword={}", "h?sentinel_password={}", "h?ssl_keyfile_password={}", "h?auth={}"),
    *("u:{}", ":{}", "u:{}/d", "u:{}@", "[::1]:6379?password={}", "u:{}@[::1]:6379"),
)
SCHEMES = (
    "postgresql", "postgres", "redis", "rediss", "valkey", "redis+sentinel", "unix", "mysql", "PostgreSQL",
)  # fmt: skip
BEHIND = ("://", ":/", ":", "//", ":///", ";//", "/")
PAIRS = (
    *("host=h password={}", "host=h password='{}' dbname=d", "password = {}", "host=h pass={}"),
    *("host=h dbname=d PASSWORD={}", "u:{}@h/d", "//u:{}@h/d", "host=h passwd='{}'"),
)
FORMS = [
    *(f"{scheme}{behind}{body}" for scheme, behind, body in product(SCHEMES, BEHIND, BODIES)),
    *PAIRS,
]
WITH_SIGNS = [sign.join(HALVES) for sign in SIGNS]


def leaks(text: str) -> bool:
    """Return whether a text has a half of the password."""
    return any(half in text for half in HALVES)


def said_about(address: str) -> str:
    """Return all that is said about an address, and each file name after it, without a connection."""
    texts = [masked(address), command_line("jobs", address, "oncecron")]
    texts.append(Spool("/state", masked(address), "oncecron").root)
    try:
        found = Settings(STORE_OPTIONS, {"store": address}).address()
    except OncecronError as error:
        return " ".join((*texts, str(error)))
    texts += [spool_of(found, "oncecron").root, as_role(address, "dba")]
    if found.kind == "postgres":
        try:
            check(address)
            PostgresReader(address, namespace="oncecron")._connection  # noqa: B018
        except OncecronError as error:
            texts.append(str(error))
    return " ".join(texts)


@pytest.mark.turns(9)
@pytest.mark.parametrize("sign", SIGNS)
def test_no_form_of_an_address_shows_its_password(sign: str) -> None:
    """With a sign that had to be escaped, one that is missing, or a parameter that does not exist."""
    wrong = [form for form in FORMS if leaks(said_about(form.format(between(sign, form))))]
    assert wrong == []


@pytest.mark.parametrize("scheme", ["postgresql", "redis", "rediss", "redis+sentinel", "unix"])
def test_a_password_is_known_to_be_there(scheme: str) -> None:
    """So a file that everybody may read is refused."""
    for form in (*(f"{scheme}://{body}" for body in BODIES), *PAIRS):
        assert has_password(form.format(HALVES[0])), form


def between(signs: str, form: str) -> str:
    """Return a password; without a host behind it, an @ cannot be told from the one in front of a host."""
    return (signs if "@h" in form or "=" in form else signs.replace("@", "")).join(HALVES)


@given(
    st.sampled_from(FORMS),
    st.lists(st.sampled_from([*SIGNS[1:], *"abc123"]), max_size=4).map("".join),
    st.sampled_from(["", " ", "\n", "'", '"']),
)
def test_nor_does_any_mixture_of_signs(form: str, signs: str, around: str) -> None:
    """Whatever is between two parts of a password that are unlike anything else."""
    assert not leaks(said_about(f"{around}{form.format(between(signs, form))}{around}"))


LIBPQ = (
    'invalid percent-encoded token: "{}"',
    'unexpected spaces found in "{}", use percent-encoded spaces (%%20) instead',
    'missing key/value separator "=" in URI query parameter: "{}"',
    'end of string reached when looking for matching "]" in IPv6 host address in URI: "postgresql://u:{}@[h"',
    "'utf-8' codec can't encode '{}'",
)


@pytest.mark.parametrize("message", LIBPQ)
def test_a_library_that_quotes_a_password_is_not_quoted(message: str) -> None:
    """Neither where it reads the address, nor where it connects."""
    for password in WITH_SIGNS:
        url = f"postgresql://u:{password}@h/d"
        for error in (
            postgres.broken(message.format(password), url),
            postgres.explain([("h", message.format(password))], url),
        ):
            assert not leaks(str(error)), password
            assert "***" in str(error)


def test_what_a_library_says_beside_the_password_stays() -> None:
    """The host and the role are needed to find the fault; and the cure does not depend on the password."""
    told = 'connection to server at "h" failed: FATAL:  3D000: database "jobs" does not exist'
    assert 'at "h" failed: FATAL: database "jobs" does not' in str(
        postgres.explain([("h", told)], "postgresql://u:secret@h/jobs")
    )
    assert "`create database jobs`, or correct" in str(
        postgres.explain([("h", told)], "postgresql://u:exist@h/jobs")
    )


def test_an_old_redis_repeats_the_arguments_of_auth() -> None:
    """Where AUTH or HELLO is renamed or unknown."""
    told = ReplyError("ERR unknown command 'AUTH', with args beginning with: 'u' 'Xq7Vd9'")
    error = explain.of_handshake("AUTH", told, "Redis redis://h", "", "default")
    assert not leaks(str(error))
    assert "unknown command 'AUTH'" in str(error)


def test_two_stores_with_hidden_parameters_have_two_spools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of one must not be delivered to the other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stores = [
        *("postgresql://h/a", "postgresql://h/b", "postgresql://h:1/a", "postgresql://i/a"),
        *("postgresql://h/a?password=x&port=1", "postgresql://h/a?password=x&port=2"),
        *("redis://:x@h/0", "redis://:x@h/1", "redis://:x@i/0", "sqlite:///a=b", "sqlite:///a=c"),
        *("sqlite:///a:b", "sqlite:///a:c", "sqlite:///a?b", "sqlite:///a?c"),
    ]
    assert len({spool_of(parse_address(each), "n").root for each in stores}) == len(stores)
    same = ["postgresql://u:x@h/a", "postgresql://u:y@h/a"]
    assert len({spool_of(parse_address(each), "n").root for each in same}) == 1
    assert os.path.dirname(spool_of(parse_address(same[0]), "n").root).endswith("/spool")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://cron@db.example.com/oncecron", "postgresql://a,b/d?target_session_attrs=any",
        "postgresql:///d?service=x", "redis://h", "redis+sentinel://a:1,b:2/m/0", "sqlite:///srv/a@b:c",
        "unix:///run/a:b@c.sock", "rediss://[fe80::1]:1/0?ssl_ca_certs=/etc/a@b&wait=1", "local",
    ],
)  # fmt: skip
def test_an_address_without_a_password_is_shown_whole(address: str) -> None:
    """No false alarm: it would refuse a file that everybody may read."""
    assert masked(address) == address
    assert not has_password(address)


SECRETS = [
    "PGPASSWORD", "MYSQL_PWD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "REDISCLI_AUTH", "SSHPASS",
    "RESTIC_PASSWORD", "BORG_PASSPHRASE", "DB_PASS", "API_KEY", "X-Api-Key", "--api-key", "--password",
    "--db-password", "--client-secret", "dbPassword", "clientSecret", "-storepass", "Authorization",
    "Cookie", "GITHUB_TOKEN", "password2", "--secrets", "PASSWORD_2",
]  # fmt: skip
NAMES = [
    "--key", "ONCECRON_KEY", "KEY", "AWS_ACCESS_KEY_ID", "--password-file", "--token-ttl", "--tokenizer",
    "--bypass", "--no-password", "--ask-become-pass", "SSH_AUTH_SOCK", "--user", "--keys", "PATH", "-p",
    "host",
]  # fmt: skip


@pytest.mark.parametrize("name", [*SECRETS, *NAMES])
def test_names_of_secrets(name: str) -> None:
    """Of variables, options, headers and parameters. A record that hides everything tells nothing."""
    assert is_secret_name(name) == (name in SECRETS)


def test_a_message_shows_no_url_that_was_mistyped_as_something_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The last safeguard, for every line on standard error."""
    stderr.complain(
        "--key 'postgresql://u:Xq7Vd9@h/d': use letters; see redis://USER@HOST, https://x/a@b"
    )
    told = capfd.readouterr().err
    assert told == (
        "oncecron: --key 'postgresql://u:***@h/d': use letters; see redis://***@HOST, https://x/a@b\n"
    )


# Commands

SECRET = "hunter2"
WORDS = {
    "postgresql://u:{}@h/d psql": "postgresql://u:***@h/d psql",
    "psql postgresql://u:{}@h/d": "psql postgresql://u:***@h/d",
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
    "curl --user user:{} https://h": "curl --user user:*** https://h",
    "curl -H 'Authorization: Bearer {}' https://h": "curl -H 'Authorization: ***' https://h",
    "curl -H 'X-Api-Key: {}' https://h": "curl -H 'X-Api-Key: ***' https://h",
    "curl 'https://h/ping?job=5&token={}&x'": "curl 'https://h/ping?job=5&token=***'",
    'curl -d \'{{"user":"a","password":"{}"}}\' h': 'curl -d \'{{"user":"a","password":***\' h',
    "git clone https://{}@github.com/a/b": "git clone https://***@github.com/a/b",
    "sshpass -p {} ssh h ls": "sshpass -p *** ssh h ls",
    "oncecron run --store redis://:{}@h --key x -- y": "oncecron run --store redis://:***@h --key x -- y",
    "curl -fsSu user:{} https://h": "curl -fsSu user:*** https://h",
    "curl -so out -U user:{} https://h": "curl -so out -U user:*** https://h",
    "curl --proxy-user=user:{} https://h": "curl --proxy-user=user:*** https://h",
    "curl --cert /c.pem:{} https://h": "curl --cert /c.pem:*** https://h",
    "curl -u {}: https://h": "curl -u *** https://h",
    "curl -sS --oauth2-bearer {} https://h": "curl -sS --oauth2-bearer *** https://h",
    "curl -sb session={} https://h": "curl -sb session=*** https://h",
    "curl 'https://h/workflows/1?api-version=1&sig={}'": "curl 'https://h/workflows/1?api-version=1&sig=***'",
    "http -a user:{} h": "http -a user:*** h",
    "mysql_upgrade -uroot -p{}": "mysql_upgrade -uroot -p***",
    "mariadb-dump -hprod -p{} db": "mariadb-dump -hprod -p*** db",
    "redis-cli -h h -a {} ping": "redis-cli -h h -a *** ping",
    "valkey-cli -a{} ping": "valkey-cli -a*** ping",
    "mongodump -u a -p {} -d d": "mongodump -u a -p *** -d d",
    "ldapsearch -xw {} -D cn=a": "ldapsearch -xw *** -D cn=a",
    "ldappasswd -x -s {}": "ldappasswd -x -s ***",
    "snmpwalk -v2c -c {} h": "snmpwalk -v2c -c *** h",
    "smbclient //h/s -U a%{}": "smbclient //h/s -U a%***",
    "lftp -u a,{} h": "lftp -u a,*** h",
    "ncftpput -u a -p {} h": "ncftpput -u a -p *** h",
    "docker login -u a -p {} h": "docker login -u a -p *** h",
    "zip -rP {} a.zip d": "zip -rP *** a.zip d",
    "7z a -p{} a.7z d": "7z a -p*** a.7z d",
    "sqlcmd -S h -U a -P {}": "sqlcmd -S h -U a -P ***",
    "ipmitool -H h -P {} power": "ipmitool -H h -P *** power",
    "cqlsh -u a -p {} h": "cqlsh -u a -p *** h",
    "mosquitto_pub -h h -P {} -t t": "mosquitto_pub -h h -P *** -t t",
    "find . -exec curl -u a:{} {{}} +": "find . -exec curl -u a:*** {{}} +",
}
"""Commands with a secret, and what is shown of them."""
HARMLESS = (
    "./bill.sh --all", "tar czf /backup/a.tgz --exclude=x /srv", "docker run -p 80:80 mysql",
    "find /var/lib/mysql -print", "curl -fsS https://hc-ping.com/abc?rid=5", "oncecron run --key a -- b",
    "rsync -a a@b:/x /y", "psql postgresql://cron@h/d -f a.sql", "mysql -u a --password-file=/x",
    "scp -P 22 a b:c", "curl -fsSo /tmp/u https://h:8443/x", "curl -o out -b cookies.txt https://h",
    "mysql -hprod -uroot db", "mysql -p db", "redis-cli -h h -p 6379 ping", "docker run -p 80:80 redis",
    "unzip -o a.zip -d p", "ssh mysql-1 cp -pr a b", "ldapsearch -h prod -b dc=w", "7z a -spf2 a.7z d",
    "mongodump --uri mongodb://h/d", "curl -K u:v https://h", "zip -r p.zip P",
    "sh -c 'cd /srv && ./bill \"a b\" >>log'", "a --tokenizer x", "restic -r s3:h/b backup",
)  # fmt: skip


@pytest.mark.parametrize(("command", "shown"), WORDS.items())
def test_what_is_recorded(command: str, shown: str) -> None:
    """The secret is missing; everything that tells which job it was is there."""
    words = shlex.split(command.format(SECRET))
    assert masked_words(words) == shlex.split(shown.format())
    assert words == shlex.split(command.format(SECRET))  # the job gets its own words


@pytest.mark.parametrize(
    "outer",
    [
        ["sh", "-c", "{}"],
        ["bash", "-lc", "cd /srv && {} | gzip >x"],
        ["a", "--shell", "{}; b"], ["sh", "-c", "x $({}) y"], ["sh", "-c", "x `{}`"],
        ["sh", "-c", "( {} ) 2>&1"], ["eval", "{}"],
    ],
)  # fmt: skip
def test_a_line_within_a_command(outer: list[str]) -> None:
    """It is shown up to its first secret, and also within a further shell."""
    for command, shown in WORDS.items():
        words = [word.replace("{}", command.format(SECRET)) for word in outer]
        assert SECRET not in repr(masked_words(words)), command
        assert "***" in repr(masked_words(words)), command
        again = ["sh", "-c", f"nice sh -c {shlex.quote(words[-1])}"]
        assert SECRET not in repr(masked_words(again)), command
        remote = ["ssh", "host", words[-1]]
        assert SECRET not in repr(masked_words(remote)), command
        if outer[-1] == "{}":
            assert masked_words(words)[-1].split("***")[0] in shown.format()


@pytest.mark.parametrize("command", HARMLESS)
def test_what_has_no_secret_stays_as_it_is(command: str) -> None:
    """A record that hides everything tells nothing."""
    assert masked_words(shlex.split(command)) == shlex.split(command)
    assert masked_line(command) == command


@pytest.mark.parametrize(
    "line",
    [
        f"mysqldump -p'{SECRET} b", f"a --password={SECRET} 'x", f'PGPASSWORD="{SECRET} b',
        f"a $(curl -u a:{SECRET}", f"a # token={SECRET}", f"a --token='x'{SECRET}",
    ],
)  # fmt: skip
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
    lambda secret: ["sshpass", "-p", secret, "ssh", "h"],
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
def test_no_command_is_too_strange(command: bytes) -> None:
    """What is masked stays so."""
    shown = masked_line(command.decode("utf-8", "surrogateescape"))
    assert masked_line(shown) == shown


def test_a_very_long_or_deep_line_is_hidden_from_its_first_secret_on() -> None:
    """It must not cost a firing a second."""
    assert masked_line("a 'token=x' " * 10_000) == "a 'token=***"
    line = "echo a token=x"
    for _ in range(9):
        line = f"sh -c {shlex.quote(line)}"
    assert "token=x" not in masked_line(line)


@pytest.mark.parametrize(
    ("how", "recorded"),
    [
        ("full", f"sh -c 'psql postgresql://u:{SECRET}@h/d'"),
        ("masked", "sh -c 'psql postgresql://u:***@h/d'"),
        ("program", "sh ..."),
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
    assert shown_words([line], "program") == ["psql", "..."]
    assert shown_words([line], "masked") == ["psql postgresql://u:***@h/d"]
    assert shown_words([""], "program") == [""]
