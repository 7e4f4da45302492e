"""The machine that the pages pretend: a home, oncecron in /usr/bin, jobs in /usr/local/bin, and servers by their names.

Paths in commands lead into a directory of the test, and back in the output. Everything of one scenario is run by one
bash, as a reader pastes it, without a terminal.
"""

import contextlib
import os
import pwd
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from psycopg import sql
from servers import PostgresServer, RedisServer
from servers.process import kill_tree, process_table, public_directory, remove_directory, spawn
from snippet_source import ROOT, Block, Command

POSTGRES, REDIS = "db.example.com", "redis.example.com"
SERVERS_ADDRESS, CLIENTS_ADDRESS = "192.0.2.10", "192.0.2.11"
OWNER, FIRING, PASSWORD = "oncecron_owner", "cron", "the-password"
JOBS = ("bill.sh", "import-orders", "report.sh", "backup.sh", "send-mails")
FORBIDDEN = ("apt-get", "apt", "docker", "kubectl", "pip", "pipx", "reboot", "systemctl", "uv")
DEADLINE = 150  # seconds for a scenario
_PATH = re.compile(
    r"(?:(?<=://)|(?<![\w./:-]))(?=/(?:usr/local|usr/bin/oncecron|etc/oncecron|srv|opt|var|home|tmp|run)\b)"
)
_MARK = "\x1e"
_USER = re.escape(pwd.getpwuid(os.geteuid()).pw_name)
_PLACES_OF_A_USER = (
    rf"(?<=user ){_USER}\b", rf"(?<=user       ){_USER}\b", rf"(?<=crontab of ){_USER}\b",
    rf"(?<=/crontabs/){_USER}(?=\.)", rf"\b{_USER}(?=@)", rf"(?<= ){_USER}(?= +\d{{4}}-)",
)  # fmt: skip
_OF_THIS_MACHINE = {
    re.compile("|".join(_PLACES_OF_A_USER)): "ann",
    re.compile(
        r"^\S+/script: line \d+: +\d+ Killed .*\n", re.MULTILINE
    ): "",  # of a job in the background
}
_AS_ANOTHER_USER = """\
while :; do
  case "$1" in
    -u) if [ "$2" = postgres ]; then export PGUSER=postgres PGHOST=$SOCKET; unset PGHOSTADDR; fi; shift 2 ;;
    -*) shift ;;
    *) exec "$@" ;;
  esac
done
"""
_STAND_INS = {
    "crontab": """\
file=$HOME/.crontab
case "${1-}" in
  -l) if [ -e "$file" ]; then exec cat "$file"; fi; echo "no crontab for ann" >&2; exit 1 ;;
  -n) exec /usr/bin/crontab -n "$2" ;;
  -r) exec rm -f "$file" ;;
  ""|-) cat >"$file.new" && exec mv "$file.new" "$file" ;;
  *) exec cp "$1" "$file" ;;
esac
""",
    "sudo": _AS_ANOTHER_USER,
    "runuser": _AS_ANOTHER_USER,
}


class Ended(NamedTuple):
    """What one command printed, and its status; None when it was not reached or has not ended."""

    command: Command
    printed: list[str]
    status: int | None


class Machine:
    """One scenario's directory, which stands for /, and its environment."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        self.to_servers: dict[str, str] = {}
        self.home, self.programs = root / "home/ann", root / "usr/local/bin"
        self.packaged = root / "usr/bin"
        for each in ("srv", "opt", "var/log", "etc/oncecron", "tmp", "run"):
            (root / each).mkdir(parents=True)
        for private in (self.home, self.programs, self.packaged):
            private.mkdir(parents=True, mode=0o755)
        self.environment = {
            "HOME": str(self.home), "USER": "ann", "LOGNAME": "ann", "SHELL": "/bin/bash", "TZ": "UTC",
            "LC_ALL": "C.UTF-8", "PATH": f"{self.programs}:{self.packaged}:/usr/bin:/bin", "ONCECRON_HOST": "web1",
            "XDG_STATE_HOME": str(self.home / ".local/state"), "PYTHONDONTWRITEBYTECODE": "",
            **environment,
        }  # fmt: skip
        self._install()

    def run(self, blocks: list[Block]) -> list[Ended]:
        """Run the commands of a scenario in one shell; return what each left, until the shell ended."""
        commands = [command for block in blocks for command in block.commands()]
        script, log = self.root / "script", self.root / "log"
        script.write_text("exec 2>&1\nset +o history\n" + "".join(map(self._marked, commands)))
        with log.open("wb") as out:
            shell = spawn(
                ["/bin/bash", "--noprofile", "--norc", str(script)],
                stdout=out, stderr=out, cwd=self.home, env=self.environment,
            )  # fmt: skip
            try:
                shell.wait(DEADLINE)
            finally:
                self._end_all()
                shell.wait()
        return list(self._ended(commands, log.read_text(errors="replace")))

    def _end_all(self) -> None:
        """Kill what the scenario has left running, found by its environment."""
        home = f"HOME={self.home}".encode()
        for process in process_table():
            with contextlib.suppress(OSError):
                if home in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    kill_tree(process.pid)

    def _marked(self, command: Command) -> str:
        text = self.pretended(command.text)
        if command.shown is None:
            text = f"set -eo pipefail\n{text}\nset +eo pipefail\n"
        return (
            f"export ONCECRON_HOST={command.host}\nprintf '{_MARK}'; (exit ${{STATUS-0}})\n"
            f"{text}\nSTATUS=$?\nprintf '{_MARK}%d{_MARK}' $STATUS\n"
        )

    def _ended(self, commands: list[Command], log: str) -> Iterator[Ended]:
        parts = iter(log.split(_MARK)[1:])
        for command in commands:
            printed, status = next(parts, ""), next(parts, "")
            next(parts, "")
            yield Ended(command, self.shown(printed).splitlines(), int(status) if status else None)

    def pretended(self, text: str) -> str:
        """Return a command with its paths and servers in the place of those that the page names."""
        for name, address in self.to_servers.items():
            text = text.replace(name, address)
        return _PATH.sub(str(self.root), text)

    def shown(self, text: str) -> str:
        """Return output as it would be on the machine of the page."""
        for name, address in self.to_servers.items():
            text = text.replace(address, name)
        port = self.environment.get("PGPORT", "5432")
        server = f'"{POSTGRES}" ({SERVERS_ADDRESS}), port 5432'
        text = text.replace(f'"127.0.0.1", port {port}', server)
        text = text.replace("127.0.0.1", CLIENTS_ADDRESS)
        for pattern, shown in _OF_THIS_MACHINE.items():
            text = pattern.sub(shown, text)
        return text.replace(str(self.root), "")

    def _install(self) -> None:
        for name in ("oncecron", "oncecron-shell"):
            (self.packaged / name).symlink_to(Path(sys.executable).with_name(name))
        scripts = dict.fromkeys(JOBS, "sleep 0.1\n")
        scripts |= {name: f"echo 'a snippet must not call {name}'; exit 99\n" for name in FORBIDDEN}
        for name, text in (scripts | _STAND_INS).items():
            (self.programs / name).write_text(f"#!/bin/sh\n{text}")
            (self.programs / name).chmod(0o755)


@contextmanager
def local_machine() -> Iterator[Machine]:
    """Give a machine whose store is a file."""
    root = public_directory("snippets")
    try:
        yield Machine(root, ONCECRON_STORE="local")
    finally:
        remove_directory(root)


@contextmanager
def redis_machine(server: RedisServer) -> Iterator[Machine]:
    """Give a machine whose store is an empty Redis."""
    with local_machine() as machine, server.connect() as client:
        typed = f"redis-cli -h {server.host} -p {server.port}"
        machine.to_servers = {
            f"redis-cli -h {REDIS}": typed, REDIS: f"{server.host}:{server.port}",
        }  # fmt: skip
        machine.environment["ONCECRON_STORE"] = f"redis://{server.host}:{server.port}/0"
        known = set(client.acl_users())
        try:
            yield machine
        finally:
            for user in set(client.acl_users()) - known:
                client.acl_deluser(user)


@contextmanager
def empty_postgres_machine(server: PostgresServer) -> Iterator[Machine]:
    """Give a machine that reaches a PostgreSQL server, where nothing has been made for oncecron."""
    known = _names(server)
    with local_machine() as machine:
        del machine.environment["ONCECRON_STORE"]
        (machine.home / "postgresql.sh").symlink_to(ROOT / "docs" / "stores" / "postgresql.sh")
        machine.to_servers = {f"{POSTGRES}:5432": f"{POSTGRES}:{server.port}"}
        machine.environment |= {
            "PGHOSTADDR": server.host, "PGPORT": str(server.port), "SOCKET": str(server.directory),
        }  # fmt: skip
        try:
            yield machine
        finally:
            _drop(server, {kind: names - known[kind] for kind, names in _names(server).items()})


@contextmanager
def postgres_machine(server: PostgresServer) -> Iterator[Machine]:
    """Give a machine whose store is a database with schema and two roles, whose passwords it knows."""
    with empty_postgres_machine(server) as machine:
        for role in (OWNER, FIRING):
            server.execute(f"create role {role} login password '{PASSWORD}'")
        server.execute(f"create database oncecron owner {OWNER} template template0")
        passwords = machine.home / ".pgpass"
        passwords.write_text(f"{POSTGRES}:*:*:*:{PASSWORD}\n")
        passwords.chmod(0o600)
        url = f"postgresql://{{}}@{POSTGRES}/oncecron"
        machine.environment["ONCECRON_STORE"] = url.format(FIRING)
        _init(machine, url.format(OWNER))
        yield machine


def _init(machine: Machine, store: str) -> None:
    text = f"oncecron init --store {store} --run-role {FIRING} --read-role {FIRING}\n"
    block = Block(machine.root, 0, "sh", text, {})
    (ended,) = machine.run([block])
    assert ended.status == 0, ended


def _names(server: PostgresServer) -> dict[str, set[str]]:
    lists = {"database": "select datname from pg_database", "role": "select rolname from pg_roles"}
    return {kind: {name for (name,) in server.execute(query)} for kind, query in lists.items()}


def _drop(server: PostgresServer, left: dict[str, set[str]]) -> None:
    with server.superuser_connect() as connection:
        for name in left["database"]:
            connection.execute(
                sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
            )
        for name in left["role"]:
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
