"""Read and check the address of a Redis store: its URL and the defaults in `[redis]`.

This module connects to nothing and imports no driver: a wrong address is refused before anything runs.
"""

from __future__ import annotations

from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.masking import masked, quoting
from oncecron.stores.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

Host = tuple[str, int]

FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
DEFAULTS = (
    *FILES,
    *("ssl_keyfile_password", "ssl_cert_reqs", "ssl_check_hostname", "wait", "keep"),
    *("username", "password", "sentinel_username", "sentinel_password"),
)
"""The keys of the table [redis] in the configuration file."""
PARAMETERS = (*DEFAULTS, "db")
"""The parameters after the `?` of a URL."""

_CHOICES = {"ssl_cert_reqs": ("required", "none"), "ssl_check_hostname": ("true", "false")}
_KINDS: dict[str, Literal["server", "socket", "sentinel", "cluster"]] = {
    "redis": "server",
    "unix": "socket",
    "redis+sentinel": "sentinel",
    "redis+cluster": "cluster",
}
_PORT, _SENTINEL_PORT, _LAST_PORT = 6379, 26379, 65535
_MOST_REPLICAS, _LAST_DATABASE = 1000, (1 << 31) - 1
_KEEP, _LEAST_KEPT, _MOST_KEPT = 10_000, 100, 1_000_000_000
_LONGEST_SOCKET = 107  # bytes; unix(7): sun_path has 108 with its end
_LONGEST_NAMESPACE = 63
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_HEX = frozenset("0123456789abcdefABCDEF")


class Tls(NamedTuple):
    """The settings of TLS; paths are absolute."""

    ca_certs: str | None
    """None: the system's."""
    certfile: str | None
    keyfile: str | None
    keyfile_password: str | None
    verify: bool
    check_hostname: bool


class Target(NamedTuple):
    """A checked address of a Redis store."""

    kind: Literal["server", "socket", "sentinel", "cluster"]
    hosts: tuple[Host, ...]
    """The server, the sentinels, or nodes of the cluster."""
    path: str
    """The path of the socket, or empty."""
    master: str
    """The sentinels' name of the master, or empty."""
    database: int
    username: str | None
    password: str | None
    sentinel_username: str | None
    sentinel_password: str | None
    tls: Tls | None
    wait: int
    """How many replicas must acknowledge a claim."""
    keep: int
    """How many executions, and how many skips, each shard keeps at most: Redis keeps them in memory."""
    shown: str
    """The URL without its passwords, for messages."""

    def __repr__(self) -> str:
        """Return a text without passwords."""
        return f"Target({self.shown!r})"


def parse(text: str, defaults: Iterable[tuple[str, str]] = ()) -> Target:
    """Read a URL, with `defaults` for what it omits. Raises `ConfigurationError` with the cure."""
    address = parse_address(text)
    if address.kind != "redis":
        raise ConfigurationError(f"{masked(text)!r} is not a Redis store")
    try:
        return _parsed(address.target, dict(defaults))
    except ValueError as error:
        why = quoting(str(error), address.target)
        raise ConfigurationError(f"{masked(address.target)!r}: {why}") from error


def check_defaults(table: Mapping[str, str]) -> None:
    """Check the table [redis] of the configuration file. Raises `ValueError` with the key."""
    for name, value in table.items():
        if name not in DEFAULTS:
            from oncecron.core.suggestion import unknown  # noqa: PLC0415 - for an error message alone

            raise ValueError(unknown("key", name, sorted(DEFAULTS)))
        _check(name, value)


def check_namespace(namespace: str) -> None:
    """Raise `ConfigurationError` unless the namespace can be the prefix of a Redis key."""
    if not 0 < len(namespace) <= _LONGEST_NAMESPACE or not _LETTERS.issuperset(namespace):
        raise ConfigurationError(
            f"invalid namespace {namespace!r} for Redis; "
            f"use 1 to {_LONGEST_NAMESPACE} characters of A-Z a-z 0-9 . _ -"
        )


def _parsed(text: str, defaults: dict[str, str]) -> Target:
    scheme, _, rest = text.partition("://")
    scheme, tls = _scheme(scheme)
    kind = _KINDS[scheme]
    if "#" in rest:
        raise ValueError("write # as %23")
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    user, at, hosts = authority.rpartition("@")
    given = _query_values(query, user if at else None)
    options = {**defaults, **given}
    if at and ":" not in user and "password" not in options:
        raise ValueError(
            "the password is missing: what stands alone before the @ is a user name; if it is the password, put a "
            "colon in front of it, directly behind the two slashes, else a colon and the password behind it"
        )
    master, told_database = _path(kind, slash + path)
    return Target(
        kind=kind,
        hosts=_hosts(kind, hosts),
        path=_socket(path) if kind == "socket" else "",
        master=master,
        database=_database(kind, told_database, given),
        username=options.get("username") or None,
        password=options.get("password"),
        sentinel_username=_of_sentinel(kind, "sentinel_username", given, options),
        sentinel_password=_of_sentinel(kind, "sentinel_password", given, options),
        tls=_tls(tls, options),
        wait=int(options.get("wait", "0")),
        keep=int(options.get("keep", _KEEP)),
        shown=masked(text),
    )


def _scheme(scheme: str) -> tuple[str, bool]:
    base, plus, topology = scheme.partition("+")
    tls = base in ("rediss", "valkeys")
    return ("unix" if base == "unix" else "redis") + plus + topology, tls


def _query_values(query: str, user: str | None) -> dict[str, str]:
    given: dict[str, str] = {}
    if user is not None:
        name, colon, password = user.partition(":")
        if name:
            given["username"] = _unescaped(name)
        if colon:
            given["password"] = _unescaped(password)
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        if name not in PARAMETERS or not equals:
            from oncecron.core.suggestion import unknown  # noqa: PLC0415 - for an error message alone

            raise ValueError(unknown("parameter", name, sorted(PARAMETERS)))
        if name in given:
            raise ValueError(f"{name} is given twice")
        given[name] = _unescaped(value)
        _check(name, given[name])
    return given


def _check(name: str, value: str) -> None:
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValueError(f"{name}: invalid value {value!r} (use {' or '.join(_CHOICES[name])})")
    if name == "wait":
        _integer(name, value, _MOST_REPLICAS)
    if name == "keep":
        _integer(name, value, _MOST_KEPT, least=_LEAST_KEPT)
    if name == "db":
        _integer(name, value, _LAST_DATABASE)
    if name in FILES and not value.startswith("/"):
        raise ValueError(f"{name}: the path {value!r} must be absolute")


def _integer(name: str, text: str, most: int, *, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
        raise ValueError(f"{name}: {text!r} is not a whole number from {least} to {most}")
    return int(text)


def _path(kind: str, path: str) -> tuple[str, str]:
    if kind == "socket":
        return "", ""
    parts = path.removeprefix("/").removesuffix("/").split("/")
    master = _unescaped(parts.pop(0)) if kind == "sentinel" else ""
    if kind == "sentinel" and not master:
        raise ValueError("the master's name is missing; write redis+sentinel://HOST,HOST/NAME")
    if len(parts) > 1:
        raise ValueError(f"{path!r} is more than a database number")
    return master, parts[0] if parts else ""


def _database(kind: str, in_path: str, given: Mapping[str, str]) -> int:
    if in_path and "db" in given:
        raise ValueError("the database is given twice")
    number = _integer("the database", in_path or given.get("db", "0"), _LAST_DATABASE)
    if kind == "cluster" and number:
        raise ValueError("a Redis Cluster has database 0 only; drop the number")
    return number


def _socket(path: str) -> str:
    path = "/" + _unescaped(path)
    if path == "/":
        raise ValueError("the socket's path is missing; write unix:///run/redis/redis.sock")
    if len(path.encode("utf-8", "surrogateescape")) > _LONGEST_SOCKET:
        raise ValueError(f"the socket's path is longer than {_LONGEST_SOCKET} bytes")
    return path


def _hosts(kind: str, text: str) -> tuple[Host, ...]:
    if kind == "socket":
        if text:
            raise ValueError(
                "the socket's path must be absolute, with three slashes: unix:///run/redis.sock"
            )
        return ()
    port = _SENTINEL_PORT if kind == "sentinel" else _PORT
    hosts = tuple(_host(part, port) for part in text.split(","))
    if kind == "server" and len(hosts) > 1:
        raise ValueError(
            "for several hosts write redis+sentinel://HOST,HOST/NAME or redis+cluster://HOST,HOST"
        )
    return hosts


def _host(text: str, port: int) -> Host:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        colon, number = rest[:1], rest[1:]
        if not bracket or colon not in ("", ":"):
            raise ValueError(f"invalid host {text!r}; write [ADDRESS]:PORT")
    else:
        host, colon, number = text.partition(":")
        if ":" in number:
            raise ValueError(
                f"invalid host {text!r}; write an IPv6 address in brackets, [ADDRESS]:PORT"
            )
    host = _unescaped(host)
    if not host:
        raise ValueError("the host is missing; write redis://HOST")
    try:
        host.encode("ascii" if host.isascii() else "idna")
    except UnicodeError:
        host = ""
    if not host or any(sign.isspace() for sign in host):
        raise ValueError(f"invalid host {text!r}")
    if colon:
        port = _integer("the port", number, _LAST_PORT)
    if not port:
        raise ValueError("invalid port 0")
    return host, port


def _of_sentinel(
    kind: str, name: str, given: Mapping[str, str], options: Mapping[str, str]
) -> str | None:
    if kind == "sentinel":
        return options.get(name) or None
    if name in given:
        raise ValueError(f"{name} is only for redis+sentinel://")
    return None


def _tls(wanted: bool, options: Mapping[str, str]) -> Tls | None:
    given = sorted(name for name in options if name.startswith("ssl_"))
    if not wanted:
        if given:  # a user who names certificates believes that the connection is encrypted
            raise ValueError(f"{given[0]} needs TLS; write rediss://")
        return None
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise ValueError("ssl_keyfile needs ssl_certfile")
    return Tls(
        ca_certs=options.get("ssl_ca_certs"),
        certfile=options.get("ssl_certfile"),
        keyfile=options.get("ssl_keyfile"),
        keyfile_password=options.get("ssl_keyfile_password"),
        verify=options.get("ssl_cert_reqs") != "none",
        check_hostname=options.get("ssl_check_hostname") != "false",
    )


def _unescaped(text: str) -> str:
    """Return the text with each %XX replaced by its byte; a + is a +."""
    first, *parts = text.split("%")
    value = first.encode("utf-8", "surrogateescape")
    for part in parts:
        if len(part) < 2 or not _HEX.issuperset(part[:2]):  # noqa: PLR2004 - two hexadecimal digits
            raise ValueError("write % as %25")
        value += bytes((int(part[:2], 16),)) + part[2:].encode("utf-8", "surrogateescape")
    if b"\0" in value:
        raise ValueError("%00 is not allowed")
    return value.decode("utf-8", "surrogateescape")
