"""Where the store is: the text of --store, read and masked."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

from oncecron import clock
from oncecron.errors import ConfigurationError

_KNOWN = "postgresql://USER@HOST/DATABASE, sqlite:///ABSOLUTE/PATH or local"


class Address(NamedTuple):
    """A store, as far as its text tells."""

    kind: Literal["postgres", "sqlite"]
    target: str
    """A libpq connection string, or an absolute path."""

    @property
    def lease_clock(self) -> int:
        """The clock by which trust in this store's leases ends."""
        return clock.MONOTONIC if self.kind == "sqlite" else clock.BOOTTIME


def parse_address(text: str) -> Address:
    """Read the text of a store. Raises `ConfigurationError` naming the cure."""
    text = text.strip()
    if text == "local":
        return Address("sqlite", os.path.join(state_directory(), "oncecron.db"))
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ConfigurationError(f"{masked(text)!r} is no store; write {_KNOWN}")
    if scheme in ("postgresql", "postgres"):
        return Address("postgres", text)
    if scheme == "sqlite":
        return Address("sqlite", _sqlite_path(rest, text))
    base, plus, driver = scheme.partition("+")
    if plus and base in ("postgresql", "postgres", "sqlite"):
        raise ConfigurationError(
            f"store {masked(text)!r}: drop '+{driver}' (a driver's name has no place here)"
        )
    raise ConfigurationError(f"store {masked(text)!r}: unknown kind {scheme!r}; write {_KNOWN}")


def _sqlite_path(rest: str, text: str) -> str:
    if not rest.startswith("/") or len(rest) == 1:
        raise ConfigurationError(
            f"store {text!r}: the path must be absolute, with three slashes: sqlite:///var/lib/jobs.db"
        )
    return os.path.normpath(rest)


def masked(text: str) -> str:
    """Return the text of a store without its password."""
    scheme, separator, rest = text.partition("://")
    if separator:
        authority, slash, path = rest.partition("/")
        credentials, at, host = authority.rpartition("@")
        if at and ":" in credentials:
            authority = credentials.partition(":")[0] + ":***@" + host
        text = scheme + separator + authority + slash + path
    for marker in ("password=", "PASSWORD="):
        before, found, after = text.partition(marker)
        if found:
            end = min((i for i in map(after.find, "& ") if i >= 0), default=len(after))
            text = before + found + "***" + after[end:]
    return text


def has_password(text: str) -> bool:
    """Return whether the text of a store holds a password."""
    return masked(text) != text


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
    """Return $HOME, or what the password database says."""
    home = os.environ.get("HOME", "")
    if home.startswith("/"):
        return home
    import pwd  # noqa: PLC0415 - rarely needed: cron sets HOME

    return pwd.getpwuid(os.geteuid()).pw_dir
