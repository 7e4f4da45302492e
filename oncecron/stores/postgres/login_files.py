"""Say which file keeps libpq from a login, and what to do: libpq ignores some silently, others with a warning.

It prints that warning to C's standard error before a connection exists, so it is part of no error (`passwordFromFile`
in libpq's fe-connect.c). What it would read is looked at here instead, after a login has failed.
"""

from __future__ import annotations

import contextlib
import os
import stat

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.address import has_password, home_directory, shell_quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Settings = Mapping[str, str | None]

_REFUSED = "28P01"
_OTHERWISE = "or give the password in store_file or by a service"


def cure_of(text: str, url: str, settings: Settings, codes: Sequence[str | None]) -> str | None:
    """Return the cure for a failure that libpq describes on one line; None: a file has no part in it.

    `codes`: the SQLSTATEs of the servers that have refused the login.
    """
    if "no password supplied" in text and settings:
        return _of_password_file(text, settings)
    if _REFUSED in codes:
        return _of_wrong_password(text, url, settings)
    if "definition of service" in text:
        services = os.environ.get("PGSERVICEFILE") or os.path.join(
            home_directory(), ".pg_service.conf"
        )
        return f"define it in {services}, or correct PGSERVICE or the store's URL"
    path = _quoted_behind(text, "service file ") or _quoted_behind(text, "private key file ")
    if path is None:
        return None
    if "has group or world access" in text:
        return f"run `chmod 600 {shell_quoted(path)}`"
    return _unreadable(path)


def _of_password_file(text: str, settings: Settings) -> str:
    path = settings.get("passfile") or os.path.join(home_directory(), ".pgpass")
    mode: int | None = None
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode
    if mode is not None and not stat.S_ISREG(mode):
        return f"libpq ignores {path}, which is not a regular file; put another file there, {_OTHERWISE}"
    if mode is not None and mode & (stat.S_IRWXG | stat.S_IRWXO):
        run = f"run `chmod 600 {shell_quoted(path)}`"
        return f"libpq ignores {path}, because its mode is {stat.S_IMODE(mode):o}; {run}"
    if why := _unreadable(path):
        return why
    has = "has no line for this login" if mode is not None else "does not exist"
    return f"{path} {has}; add `{_line(text, settings)}` to it (mode 600), {_OTHERWISE}"


def _line(text: str, settings: Settings) -> str:
    """Return the line of the password file that libpq looks for; for a socket, how libpq was built decides its host."""
    names = (settings.get("host") or settings.get("hostaddr") or "").split(",")
    ports = (settings.get("port") or "").split(",")
    ports = ports if len(ports) == len(names) else ports[:1] * len(names)
    pairs = list(zip(names, ports, strict=True))
    host, port = next((pair for pair in pairs if f'"{pair[0]}"' in text), pairs[0])
    host = "*" if host[:1] in ("", "/", "@") else host
    login = (host, port or "5432", settings.get("dbname") or "*", settings.get("user") or "*")
    escaped = (word.replace("\\", "\\\\").replace(":", "\\:") for word in login)
    return ":".join((*escaped, "PASSWORD"))


def _of_wrong_password(text: str, url: str, settings: Settings) -> str:
    """Name the one place from which libpq took the password: the URL, then the service, $PGPASSWORD and the file."""
    path = _quoted_behind(text, "password retrieved from file ")
    if path is not None:
        where = path
    elif has_password(url):
        where = "the store's URL"
    elif settings.get("service"):
        where = f"the service {settings['service']}"
    elif os.environ.get("PGPASSWORD"):
        where = "$PGPASSWORD"
    else:
        where = "the store's URL or in ~/.pgpass"
    return f"check the password in {where}"


def _unreadable(path: str) -> str | None:
    """Return why this user cannot read a file that is there; libpq says of it that it was not found, or nothing."""
    try:
        os.stat(path)
        if os.access(path, os.R_OK, effective_ids=True):
            return None
    except PermissionError:  # of a directory above it
        pass
    except OSError:
        return None
    return f"user {os.geteuid()} may not read {path}; change its owner or mode"


def _quoted_behind(text: str, words: str) -> str | None:
    _, found, rest = text.partition(f'{words}"')
    return rest.partition('"')[0] if found else None
