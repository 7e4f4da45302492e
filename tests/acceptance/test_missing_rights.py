"""Every message of a missing right names the whole command that gives it: it is pasted here, and then it works."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Database, PostgresServer, RedisServer
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron
from servers.postgres import password_of
from servers.require import SYSTEM_PATH, program

from oncecron.stores.postgres.login_rights import cure_of
from oncecron.stores.redis.explain import READING, acl_rule

TEAM = ("--namespace", "team")
RUN = ("run", "--key", "k", "--no-tick", *TEAM, "--", "true")
EACH = ("each", "--key", "e", "--tick", "t", "--items", "echo 1", *TEAM, "--", "true")
PASTED = re.compile(r"`([^`]+)`")


@pytest.fixture
def database(new_postgres: Callable[..., PostgresServer]) -> Database:
    """Give a database of a server whose roles may be changed."""
    return new_postgres().create_database()


def paste(text: str, database: Database) -> None:
    """Run what stands in backquotes: commands by a shell that has the owner's password, SQL as a superuser."""
    commands = PASTED.findall(text)
    assert commands, text
    for command in commands:
        if not command.startswith("oncecron "):
            with database.server.superuser_connect(database.name) as connection:
                connection.execute(command)
            continue
        assert " --store postgresql://owner@" in command
        assert command.endswith(" --namespace team")
        environment = {
            "PATH": f"{Path(CONSOLE_SCRIPT).parent}:{SYSTEM_PATH}",
            "PGPASSWORD": password_of("owner"),
        }
        subprocess.run(["/bin/sh", "-ec", command], env=environment, check=True)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "words", [RUN, EACH, ("history", *TEAM), ("locks", *TEAM), ("pause", "k", "--new", *TEAM)]
)
@pytest.mark.parametrize("state", ["no schema", "no rights", "other rights"])
def test_a_role_gets_the_right_that_it_lacks(
    database: Database, public_path: Path, words: tuple[str, ...], state: str
) -> None:
    """Where there is no schema, it may take two messages: that is made first."""
    owner, runner = (Oncecron(database.url(role), public_path) for role in ("owner", "runner"))
    others = {"run": "read", "each": "read", "history": "job"}.get(words[0], "run")
    if state != "no schema":
        rights = (f"--{others}-role", "runner") if state == "other rights" else ()
        assert owner("init", *TEAM, *rights).status == 0
    refused: Ended = runner(*words)
    assert refused.status == 78
    paste(refused.err, database)
    again = runner(*words)
    if state == "no schema" and again.status:
        paste(again.err, database)
        again = runner(*words)
    assert again.status == 0, again


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("prune", "--executions", "90d"), "prune --executions 90d --skips 7d"),
        (("init", "--run-role", "runner"), "init --run-role runner"),
        (("init", "--keep-skips", "2d"), "init --keep-skips 2d"),
    ],
)
def test_only_the_owner_may(
    database: Database, public_path: Path, words: tuple[str, ...], command: str
) -> None:
    """The command is the same, with its options."""
    owner, runner = (Oncecron(database.url(role), public_path) for role in ("owner", "runner"))
    assert owner("init", *TEAM, "--read-role", "runner").status == 0
    refused = runner(*words, *TEAM)
    assert refused.status == 78
    assert f"run `oncecron {command} --store postgresql://owner@" in refused.err
    paste(refused.err, database)


def test_who_may_not_create_the_schema_is_also_offered_the_sql(
    database: Database, public_path: Path
) -> None:
    """It needs no connection, so it can be printed by anybody."""
    runner = Oncecron(database.url("runner"), public_path)
    refused = runner("init", *TEAM, "--run-role", "runner")
    assert refused.status == 78
    first, second = PASTED.findall(refused.err)
    assert (
        second
        == f'oncecron init --run-role runner --print-sql --store "$ONCECRON_STORE" {" ".join(TEAM)}'
    )
    paste(f"`{first}`", database)
    assert runner(*RUN).status == 0


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    "statement", ["alter role runner nologin", "revoke connect on database {} from public"]
)
@pytest.mark.parametrize("words", [RUN, ("history", *TEAM)])
def test_a_role_may_log_in_again(
    database: Database, public_path: Path, words: tuple[str, ...], statement: str
) -> None:
    """With psycopg, and with libpq alone."""
    rights = ("--run-role", "runner", "--read-role", "runner")
    assert Oncecron(database.url("owner"), public_path)("init", *TEAM, *rights).status == 0
    database.server.execute(statement.format(database.name))
    runner = Oncecron(database.url("runner"), public_path)
    refused = runner(*words)
    assert refused.status == 78
    paste(refused.err, database)
    assert runner(*words).status == 0


def test_a_role_that_does_not_exist_is_made(database: Database, public_path: Path) -> None:
    """Also one whose name needs quotes."""
    owner = Oncecron(database.url("owner"), public_path)
    refused = owner("init", *TEAM, "--run-role", "Web hosts")
    assert 'have a superuser run `create role "Web hosts" login`' in refused.err
    paste(refused.err, database)
    assert owner("init", *TEAM, "--run-role", "Web hosts").status == 0


def test_doctor_names_the_command(database: Database, public_path: Path) -> None:
    """It is the finding's cure."""
    assert (
        Oncecron(database.url("owner"), public_path)("init", *TEAM, "--read-role", "reader").status
        == 0
    )
    reader = Oncecron(database.url("reader"), public_path)

    def state() -> dict[str, str]:
        found = json.loads(reader("doctor", "--json", *TEAM).out)
        return next(each for each in found if each["subject"] == "role")

    paste(state()["cure"], database)
    assert state()["state"] == "ok"


NO_ENTRY = 'FATAL: no pg_hba.conf entry for host "{}", user "cron", database "oncecron", {}'


@pytest.mark.parametrize(
    ("message", "cure"),
    [
        (NO_ENTRY.format("192.0.2.11", "no encryption"), "`host oncecron cron 192.0.2.11/32 scram-sha-256`"),
        (NO_ENTRY.format("2001:db8::7", "SSL encryption"), "`hostssl oncecron cron 2001:db8::7/128 scram-sha-256`"),
        (NO_ENTRY.format("192.0.2.1", "SSL on").replace("oncecron", "Once"), '`hostssl "Once" cron 192.0.2.1/32 scram'),
        (NO_ENTRY.format("[local]", "no encryption"), "`local oncecron cron scram-sha-256`"),
        ('FATAL: role "cron" does not exist', "`create role cron login`, or correct the store's URL"),
        ('FATAL: database "a-b" does not exist', '`create database "a-b"`, or correct the store\'s URL'),
    ],
)  # fmt: skip
def test_what_lets_a_role_in(message: str, cure: str) -> None:
    """The line of pg_hba.conf, or the statement."""
    assert cure in (cure_of(message) or "")


BOB = acl_rule("bob", "team", login="on >secret")


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("less", "words"),
    [
        (["+eval", "+evalsha"], RUN),
        (["~team:*"], RUN),
        (["+hset"], RUN),
        (["+select"], RUN),
        (["+hmget"], ("history", *TEAM)),
        (["+eval", "+evalsha"], ("pause", "k", "--new", *TEAM)),
    ],
)
def test_a_redis_user_gets_the_right_that_it_lacks(
    new_redis: Callable[..., RedisServer],
    public_path: Path,
    less: list[str],
    words: tuple[str, ...],
) -> None:
    """By redis-cli, with the server, the user and the namespace."""
    server = new_redis(aof=True)
    server.connect().execute_command(*(word for word in BOB if word not in less))
    bob = Oncecron(server.url(login="bob:secret", database=1), public_path)
    refused = bob(*words)
    assert refused.status == 78
    [command] = PASTED.findall(refused.err)
    assert " ACL SETUSER bob " in command
    if "+select" not in less:
        assert command.startswith(f"redis-cli -h {server.host} -p {server.port} ")
    if words[0] == "history":
        assert command.count("+") == READING.count("+")
    command = command.replace("redis-cli ACL", f"redis-cli -h {server.host} -p {server.port} ACL")
    subprocess.run(
        ["/bin/sh", "-ec", command],
        env={"PATH": str(Path(program("redis-cli")).parent)},
        check=True,
    )
    again = bob(*words)
    assert again.status == 0, again
