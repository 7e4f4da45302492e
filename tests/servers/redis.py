"""Redis servers of the tests' own, with and without an append-only file."""

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers.process import (
    as_server_user,
    end,
    free_port,
    remove_directory,
    server_directory,
    spawn,
)
from servers.require import program
from servers.waiting import eventually


class RedisServer:
    """One server with its own directory and port, without RDB snapshots.

    Keywords are settings of redis.conf, `_` standing for `-`, such as `maxmemory="4mb"` or
    `replicaof="127.0.0.1 7000"`.
    """

    def __init__(
        self, *, aof: bool = False, host: str = "127.0.0.1", prefix: Sequence[str] = (),
        **settings: object,
    ) -> None:  # fmt: skip
        self.host = host
        self.port = free_port()
        self.directory = server_directory("redis")
        self.prefix = list(prefix)
        self.settings = {
            "appendonly": "yes" if aof else "no",
            "appendfsync": "always",
            "save": '""',
            "bind": host,
            "port": self.port,
            "unixsocket": self.directory / "socket",
            "dir": self.directory,
            "logfile": self.directory / "log",
            "protected-mode": "no",
        } | {name.replace("_", "-"): value for name, value in settings.items()}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "RedisServer":
        """Start it and wait until it answers."""
        conf = self.directory / "redis.conf"
        conf.write_text("".join(f"{name} {value}\n" for name, value in self.settings.items()))
        command = [program("redis-server"), str(conf)]
        self.process = spawn(
            [*self.prefix, *as_server_user(), *command],
            cwd=self.directory, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.wait_ready()
        return self

    def wait_ready(self, deadline: float = 10) -> None:
        """Wait until the server answers and has loaded its data."""

        def answers() -> bool:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"Redis ended instead of starting:\n{self.log()}")
            with self.connect() as client:
                return bool(client.ping())

        eventually(answers, deadline, retry_on=(redis.ConnectionError, redis.TimeoutError))

    def connect(self, **options: Any) -> "redis.Redis":
        """Return a client through the unix socket that never tries a command twice."""
        return redis.Redis(
            unix_socket_path=str(self.directory / "socket"),
            socket_timeout=5,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            **options,
        )

    def url(self, database: int = 0, *, via: Any = None) -> str:
        """Return a URL over TCP, on demand by way of a proxy."""
        to = via or self
        return f"redis://{to.host}:{to.port}/{database}"

    def flush(self) -> None:
        """Remove all data."""
        with self.connect() as client:
            client.flushall()

    def log(self) -> str:
        """Return the server's log."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "log").read_text(errors="replace")
        return ""

    def stop(self) -> None:
        """Shut down in order."""
        if self.process is not None:
            end(self.process, signal.SIGTERM)
            self.process = None

    def kill(self) -> None:
        """SIGKILL it; what is not in an append-only file is lost."""
        if self.process is not None:
            end(self.process, signal.SIGKILL)
            self.process = None

    def restart(self) -> None:
        """Stop and start again, on the same port."""
        self.stop()
        self.start()

    def sigstop(self) -> None:
        """Freeze it; the kernel still acknowledges for it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def sigcont(self) -> None:
        """Thaw it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """End it and remove its files."""
        self.kill()
        remove_directory(self.directory)
