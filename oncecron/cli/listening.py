"""Where a command serves: the address of `--listen`, and the one line where it cannot be used."""

from __future__ import annotations

import ipaddress
import socket

from oncecron.core.errors import ConfigurationError, UsageError

LOOPBACK = "127.0.0.1"
_HIGHEST_PORT = 65535
_WAITING = 128  # connections that nobody has accepted yet


def listen_address(text: str, port: int) -> tuple[str, int]:
    """Return the host and the port of `[HOST:]PORT`. Raises `UsageError`; `port`: one for its example."""
    host, _, digits = text.rpartition(":")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(_HIGHEST_PORT))
    if not is_number or int(digits) > _HIGHEST_PORT:
        raise UsageError(f"--listen: {text!r} has no port; use {port}, or {LOOPBACK}:{port}")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(digits)


def unusable(host: str, port: int, error: OSError) -> ConfigurationError:
    """Return the error for an address at which nobody can listen."""
    return ConfigurationError(
        f"--listen: cannot listen at {shown_address(host, port)}: {error.strerror}"
    )


def shown_address(host: str, port: int) -> str:
    """Return HOST:PORT as a URL has it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises `ConfigurationError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_WAITING)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise unusable(host, port, error) from error
    except UnicodeError as error:  # a label that is empty or too long
        raise unusable(host, port, OSError(0, "no such host")) from error
    return listening


def is_loopback(listening: socket.socket) -> bool:
    """Return whether this machine alone can connect to a socket."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback
