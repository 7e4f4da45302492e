"""Read the address of a store (--store), and mask its password."""

from __future__ import annotations

import os

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

DEFAULT_NAMESPACE = "oncecron"
_KNOWN = "postgresql://USER@HOST/DATABASE, redis://HOST, sqlite:///ABSOLUTE/PATH or local"
_REDIS = ("redis", "rediss", "valkey", "valkeys")
_REDIS_SCHEMES = (
    *_REDIS,
    "unix",
    *(f"{base}+{kind}" for base in _REDIS for kind in ("sentinel", "cluster")),
)
_MEANT = {
    "redis+tls": "rediss",
    "redis+ssl": "rediss",
    "redis+unix": "unix",
    "redis+socket": "unix",
    "sentinel": "redis+sentinel",
    "redis-sentinel": "redis+sentinel",
    "rediss-sentinel": "rediss+sentinel",
    "cluster": "redis+cluster",
    "redis-cluster": "redis+cluster",
    "rediss-cluster": "rediss+cluster",
}


class Address(NamedTuple):
    """The address of a store."""

    kind: Literal["postgres", "redis", "sqlite"]
    target: str
    """A libpq connection string, the URL of a Redis store, or an absolute path."""
    options: tuple[tuple[str, str], ...] = ()
    """For Redis: the table [redis] of the configuration file. The URL takes precedence."""

    @property
    def lease_clock(self) -> int:
        """The clock by which trust in this store's leases ends."""
        return clock.MONOTONIC if self.kind == "sqlite" else clock.BOOTTIME


def parse_address(text: str) -> Address:
    """Read the address of a store. Raises `ConfigurationError` with the cure."""
    text = text.strip()
    if text == "local":
        return Address("sqlite", os.path.join(state_directory(), "oncecron.db"))
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme = text.partition(":")[0]
        cure = f"write {scheme}://" if scheme in _REDIS_SCHEMES else f"write {_KNOWN}"
        raise ConfigurationError(f"{masked(text)!r} is not a store; {cure}")
    if scheme in ("postgresql", "postgres"):
        _check_password(scheme, rest, text, {"/": "%2F", "@": "%40"})
        return Address("postgres", text)
    if scheme in _REDIS_SCHEMES:
        _check_password(scheme, rest, text, {"/": "%2F", "@": "%40", "?": "%3F"})
        return Address("redis", text)
    if scheme == "sqlite":
        return Address("sqlite", _sqlite_path(rest, text))
    if scheme in _MEANT:
        raise ConfigurationError(
            f"store {masked(text)!r}: unknown kind {scheme!r}; write {_MEANT[scheme]}://"
        )
    base, plus, driver = scheme.partition("+")
    if plus and base in ("postgresql", "postgres", "sqlite"):
        raise ConfigurationError(
            f"store {masked(text)!r}: drop '+{driver}' (a driver's name has no place here)"
        )
    raise ConfigurationError(f"store {masked(text)!r}: unknown kind {scheme!r}; write {_KNOWN}")


def _check_password(scheme: str, rest: str, text: str, escapes: dict[str, str]) -> None:
    span = _password_in(scheme, rest)
    if span and any(sign in rest[span[0] : span[1]] for sign in escapes):
        written = [f"{sign} as {escape}" for sign, escape in escapes.items()]
        raise ConfigurationError(
            f"store {masked(text)!r}: write {', '.join(written[:-1])} and {written[-1]} in the password"
        )


def _sqlite_path(rest: str, text: str) -> str:
    if not rest.startswith("/") or len(rest) == 1:
        raise ConfigurationError(
            f"store {text!r}: the path must be absolute, with three slashes: sqlite:///var/lib/jobs.db"
        )
    return os.path.normpath(rest)


def masked(text: str) -> str:
    """Return an address, or an error about it, without the password."""
    scheme, separator, rest = text.partition("://")
    if separator and (span := _password_in(scheme, rest)):
        text = scheme + separator + rest[: span[0]] + "***" + rest[span[1] :]
    return _without_values(text)


def _password_in(scheme: str, rest: str) -> tuple[int, int] | None:
    """Return where the password of USER:PASSWORD@ begins and ends, also with an unescaped / or @ in it."""
    authority = rest.partition("/")[0]
    end = authority.rfind("@")
    if end < 0:
        end = rest.partition("?")[0].rfind("@")
    start = authority.find(":") + 1
    if not 0 < start <= end:
        return None
    secret = rest[start:end]
    port, _, parameters = secret.partition("?")
    if port != secret and "=" not in parameters:
        port = secret
    if not scheme.startswith(("redis", "valkey")):
        port = port.partition("/")[0]  # the name of a database may contain an @
    is_port = start > 1 and port != secret and port.isdigit()
    return None if is_port else (start, end)


def _without_values(text: str) -> str:
    """Return a connection string with every `password=...` hidden, `sslpassword` and quoted ones too."""
    lower = text.lower()
    shown, done = "", 0
    while (found := lower.find("password", done)) >= 0:
        start = found + len("password")
        while text[start : start + 1] == " ":
            start += 1
        if text[start : start + 1] != "=":
            shown, done = shown + text[done:start], start
            continue
        start += 1
        while text[start : start + 1] == " ":
            start += 1
        shown, done = shown + text[done:start] + "***", _end_of_value(text, start)
    return shown + text[done:]


def _end_of_value(text: str, start: int) -> int:
    if text[start : start + 1] == "'":
        end = text.find("'", start + 1)
        while end > 0 and text[end - 1] == "\\":
            end = text.find("'", end + 1)
        return end + 1 if end > 0 else len(text)
    signs = "&" if "://" in text[:start] else "& "
    return min(
        (at for at in (text.find(sign, start) for sign in signs) if at >= 0), default=len(text)
    )


def has_password(text: str) -> bool:
    """Return whether an address contains a password."""
    return masked(text) != text


def command_line(words: str, store: str, namespace: str) -> str:
    """Return `oncecron WORDS` for this store and namespace, in backquotes, to be pasted into a shell.

    A password is never shown: $ONCECRON_STORE stands for the URL where it is set, else the configuration file does.
    """
    typed = f" --store {shell_quoted(store)}"
    if has_password(store):
        typed = ' --store "$ONCECRON_STORE"' if os.environ.get("ONCECRON_STORE") else ""
    if namespace != DEFAULT_NAMESPACE:
        typed += f" --namespace {shell_quoted(namespace)}"
    return f"`oncecron {words}{typed}`"


def shell_quoted(text: str) -> str:
    """Return a text as one word for a shell."""
    import shlex  # noqa: PLC0415 - for error messages alone

    return shlex.quote(text)


def as_role(store: str, role: str) -> str:
    """Return the URL of a PostgreSQL store for another role: without the user, the password and what they open."""
    import urllib.parse  # noqa: PLC0415 - for error messages alone

    scheme, _, rest = store.partition("://")
    authority, slash, path = rest.partition("/")
    hosts = authority.rpartition("@")[2]
    return f"{scheme}://{urllib.parse.quote(role, safe='')}@{hosts}{slash}{path}"


def state_directory() -> str:
    """Return the directory of the spool and the `local` store.

    $XDG_STATE_HOME/oncecron, else /var/lib/oncecron for root, else ~/.local/state/oncecron.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):
        return os.path.join(base, "oncecron")
    if os.geteuid() == 0:
        return "/var/lib/oncecron"
    return os.path.join(home_directory(), ".local/state/oncecron")


def home_directory() -> str:
    """Return $HOME, or the home directory in the password database. Raises `ConfigurationError` without either."""
    home = os.environ.get("HOME", "")
    if home.startswith("/"):
        return home
    import pwd  # noqa: PLC0415 - rarely needed: cron sets HOME

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise ConfigurationError(f"user {os.geteuid()} has no home directory; set $HOME") from None
