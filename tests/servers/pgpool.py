"""Debian's pgpool-II, as it comes, in front of a primary and its standby: fetched and unpacked, not installed."""

import signal

import debian
import psycopg

from servers.other_crons import DIRECTORY as CRONS
from servers.other_crons import OLDER, fetch_packages
from servers.postgres import ROLES, SUPERUSER, PostgresServer, password_of
from servers.process import (
    as_server_user,
    end,
    free_port,
    remove_directory,
    server_directory,
    spawn,
)
from servers.waiting import eventually

DIRECTORY = CRONS.with_name("pgpool")
PACKAGES = [
    f"{name}/{OLDER}" for name in ("pgpool2", "libpgpool2", "libmemcached11", "libhashkit2")
]
CONFIGURATION = """\
backend_clustering_mode = 'streaming_replication'
listen_addresses = '{host}'
port = {port}
pcp_port = {pcp_port}
unix_socket_directories = '{directory}'
pcp_socket_dir = '{directory}'
wd_ipc_socket_dir = '{directory}'
pid_file_name = '{directory}/pid'
logdir = '{directory}'
load_balance_mode = on
num_init_children = 8
enable_pool_hba = on
pool_passwd = 'pool_passwd'
sr_check_user = '{superuser}'
sr_check_password = '{password}'
sr_check_period = 2
"""
BACKEND = """\
backend_hostname{number} = '{server.host}'
backend_port{number} = {server.port}
backend_weight{number} = {weight}
backend_flag{number} = 'ALLOW_TO_FAILOVER'
"""


class Pgpool:
    """A pgpool-II with the roles of the tests. Each read that it balances goes to the last of its servers."""

    def __init__(self, *servers: PostgresServer) -> None:
        self.servers = servers
        self.host = servers[0].host
        self.port = free_port()
        self.directory = server_directory("pgpool")

    def start(self) -> "Pgpool":
        """Start it and wait until it knows its servers. A skip names the reason where it cannot be had."""
        debian.once(DIRECTORY, lambda: fetch_packages(DIRECTORY, PACKAGES))
        root = DIRECTORY / "root/usr"
        self._write_files()
        libraries = [root / "lib", *root.glob("lib/*-linux-gnu")]
        words = ("-n", "-f", "pgpool.conf", "-F", "pcp.conf", "-a", "pool_hba.conf")
        with (self.directory / "log").open("ab") as log:
            self.process = spawn(
                [*as_server_user(), str(root / "sbin/pgpool"), *words],
                stdout=log, stderr=log, cwd=self.directory,
                env={"LD_LIBRARY_PATH": ":".join(map(str, libraries))},
            )  # fmt: skip
        eventually(self._balances, 30, retry_on=psycopg.OperationalError)
        return self

    def _write_files(self) -> None:
        text = CONFIGURATION.format(
            host=self.host, port=self.port, pcp_port=free_port(), directory=self.directory,
            superuser=SUPERUSER, password=password_of(SUPERUSER),
        )  # fmt: skip
        last = len(self.servers) - 1
        for number, server in enumerate(self.servers):
            text += BACKEND.format(number=number, server=server, weight=int(number == last))
        users = "".join(f"{role}:TEXT{password_of(role)}\n" for role in (*ROLES, SUPERUSER))
        hba = "host all all 0.0.0.0/0 scram-sha-256\n"
        contents = {"pgpool.conf": text, "pool_passwd": users, "pool_hba.conf": hba, "pcp.conf": ""}
        for name, content in contents.items():
            (self.directory / name).write_text(content)

    def _balances(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"pgpool-II ended instead of starting:\n{self.log()}")
        with psycopg.connect(self.servers[0].url(SUPERUSER, via=self), connect_timeout=5) as pooled:
            row = pooled.execute("select inet_server_port()").fetchone()
        return row == (self.servers[-1].port,)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def remove(self) -> None:
        end(self.process, signal.SIGINT)
        remove_directory(self.directory)
