"""Debian's nginx, with one server block: fetched and unpacked, not installed."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import debian
from servers.other_crons import DIRECTORY as CRONS
from servers.other_crons import OLDER, fetch_packages
from servers.process import end, spawn

DIRECTORY = CRONS.with_name("nginx")
CONFIGURATION = """\
daemon off;
user root;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {server}
}}
"""


@contextlib.contextmanager
def nginx(directory: Path, server: str) -> Iterator[None]:
    """Serve a block; fail with what nginx says of it. A skip names the reason where it cannot be had."""
    debian.once(DIRECTORY, lambda: fetch_packages(DIRECTORY, [f"nginx/{OLDER}"]))
    configuration = directory / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(directory=directory, server=server))
    program = str(DIRECTORY / "root/usr/sbin/nginx")
    command = [
        program,
        "-p",
        str(directory),
        "-e",
        f"{directory}/error.log",
        "-c",
        str(configuration),
    ]
    tried = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    process = spawn(command)
    try:
        yield
    finally:
        end(process)
