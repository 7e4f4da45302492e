"""Redis servers of the tests' own, with and without an append-only file."""

import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers import versions
from servers.certificates import Certificates
from servers.process import (
    as_server_user,
    end,
    free_port,
    remove_directory,
    server_directory,
    server_user,
    spawn,
)
from servers.require import program
from servers.waiting import eventually

# The tests' own way in, whatever is forbidden to others.
ADMIN = "admin"
ADMIN_PASSWORD = "admin-password"


class Endpoint(NamedTuple):
    """Where something listens."""

    host: str
    port: int


def server_program() -> str:
    """Return the path of the server: ONCECRON_TEST_REDIS_SERVER, else redis-server."""
    chosen = os.environ.get("ONCECRON_TEST_REDIS_SERVER")
    if chosen in versions.REDIS:
        return versions.redis_server(chosen)
    return chosen or program("redis-server")


@functools.cache
def major_version() -> int:
    """Return the first number of the server's version; that of Valkey began as Redis 7.2."""
    said = subprocess.run(
        [server_program(), "--version"], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(said.stdout.partition(" v=")[2].partition(".")[0])


class RedisServer:
    """One server with its own directory and port, without RDB snapshots.

    Keywords are settings of redis.conf, `_` standing for `-`, such as `maxmemory="4mb"` or
    `replicaof="127.0.0.1 7000"`; a list is a setting that is given several times, such as
    `user=["default off", "cron on >secret ~oncecron:* +@all"]`. With `tls` it listens on a
    second port, `tls_endpoint`, with the certificate `server`.
    """

    mode: Sequence[str] = ()

    def __init__(
        self, *, aof: bool = False, host: str = "127.0.0.1", prefix: Sequence[str] = (),
        tls: Certificates | None = None, **settings: object,
    ) -> None:  # fmt: skip
        self.host = host
        self.port = free_port()
        self.certificates = tls
        self.directory = server_directory("redis")
        self.prefix = list(prefix)
        self.settings = self._defaults(aof) | {
            name.replace("_", "-"): value for name, value in settings.items()
        }
        if tls is not None:
            self.tls_endpoint = Endpoint(host, free_port())
            self.settings |= {
                "tls-port": self.tls_endpoint.port,
                "tls-cert-file": tls["server.crt"],
                "tls-key-file": tls["server.key"],
                "tls-ca-cert-file": tls["ca.crt"],
            }
            self.settings.setdefault("tls-auth-clients", "no")
        self.process: subprocess.Popen[bytes] | None = None
        self._written: dict[str, Any] | None = None

    def start(self) -> "RedisServer":
        """Start it and wait until it answers; what it wrote into its configuration itself is still there."""
        conf = self._write_conf()
        command = [server_program(), str(conf), *self.mode]
        self.process = spawn(
            [*self.prefix, *as_server_user(), *command],
            cwd=self.directory, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.wait_ready()
        return self

    def wait_ready(self, deadline: float = 30) -> None:
        """Wait until the server answers and has loaded its data."""

        def answers() -> bool:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"Redis ended instead of starting:\n{self.log()}")
            with self.connect() as client:
                return bool(client.ping())

        eventually(answers, deadline, retry_on=(redis.ConnectionError, redis.TimeoutError))

    def connect(self, *, via: Any = None, **options: Any) -> "redis.Redis":
        """Return a client that may do all and never tries a command twice: by the unix socket, or by a proxy."""
        wanted = {"username": ADMIN, "password": ADMIN_PASSWORD, "socket_timeout": 5} | options
        socket = {"unix_socket_path": str(self.directory / "socket")}
        return redis.Redis(
            **(socket if via is None else {"host": via.host, "port": via.port}),
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            **wanted,
        )

    def url(self, database: int = 0, *, via: Any = None, login: str = "", **options: object) -> str:
        """Return a URL over TCP, on demand by way of a proxy, with a login `USER:PASSWORD` and parameters."""
        return self._url("redis", via or self, database, login, options)

    def tls_url(
        self, database: int = 0, *, via: Any = None, login: str = "", **options: object
    ) -> str:
        """Return a URL over TLS that trusts the authority of the server's certificate."""
        assert self.certificates is not None
        options.setdefault("ssl_ca_certs", self.certificates["ca.crt"])
        return self._url("rediss", via or self.tls_endpoint, database, login, options)

    def unix_url(self, database: int = 0) -> str:
        return f"unix://{self.directory}/socket?db={database}"

    @staticmethod
    def _url(scheme: str, to: Any, database: int, login: str, options: dict[str, Any]) -> str:
        at = f"{login}@" if login else ""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"{scheme}://{at}{to.host}:{to.port}/{database}" + (f"?{query}" if query else "")

    def flush(self) -> None:
        with self.connect() as client:
            client.flushall()

    def log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "log").read_text(errors="replace")
        return ""

    def stop(self) -> None:
        if self.process is not None:
            end(self.process, signal.SIGTERM)
            self.process = None

    def kill(self) -> None:
        """SIGKILL it; what is not in an append-only file is lost."""
        if self.process is not None:
            end(self.process, signal.SIGKILL)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def sigstop(self) -> None:
        """Freeze it; the kernel still acknowledges for it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def sigcont(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        self.kill()
        remove_directory(self.directory)

    # Within

    def _defaults(self, aof: bool) -> dict[str, Any]:
        return {
            "appendonly": "yes" if aof else "no", "appendfsync": "always", "save": '""', "bind": self.host,
            "port": self.port,
            "unixsocket": self.directory / "socket",
            "dir": self.directory, "logfile": self.directory / "log", "protected-mode": "no",
            "repl-diskless-sync-delay": 0,
        }  # fmt: skip

    def _write_conf(self) -> Any:
        conf = self.directory / "redis.conf"
        if self._written == self.settings:
            return conf  # with what CONFIG REWRITE, or a sentinel, has learnt since
        lines = [f"user {ADMIN} on >{ADMIN_PASSWORD} ~* &* +@all"]
        for name, value in self.settings.items():
            several = value if isinstance(value, list) else [value]
            lines += [f"{name} {one}" for one in several]
        conf.write_text("\n".join(lines) + "\n")
        self._written = dict(self.settings)
        user = server_user()
        if user is not None:
            os.chown(conf, user.pw_uid, user.pw_gid)  # sentinels write what they learn into it
        return conf
