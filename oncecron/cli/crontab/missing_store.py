"""Which users have wrapped lines on this host, but no store: each of these lines would exit 78.

A line finds its store by `--store`, by the variables of the crontab, by /etc/environment (where cron uses pam_env), or
by the configuration file that `oncecron run` would find for the user whom cron runs it as.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import tomllib
from typing import TYPE_CHECKING, Any

from oncecron.cli.crontab.user_crontab import own_name
from oncecron.config.file import find_file
from oncecron.crontab.prefix import read_prefix
from oncecron.stores.address import home_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncecron.crontab.prefix import Prefix
    from oncecron.crontab.scanner import Crontab

_STORES = ("store", "store_file")
_VARIABLES = ("ONCECRON_STORE", "ONCECRON_STORE_FILE")
_OF_LOGINS = "/etc/environment"


def users_without_store(crontab: Crontab, owner: str | None) -> list[str]:
    """Return the users of wrapped lines that have no store; `owner`: who runs lines that name no user."""
    logins = _login_environment()
    found: dict[str, None] = {}
    for entry in crontab.entries():
        user = os.fsdecode(entry.user) if entry.user else owner
        prefix = read_prefix(entry.command)
        if prefix is None or user is None:
            continue
        above = crontab.environment(entry)
        environment = logins | {os.fsdecode(name): os.fsdecode(above[name]) for name in above}
        if not _has_store(prefix, environment, user):
            found[user] = None
    return list(found)


def _has_store(prefix: Prefix, environment: Mapping[str, str], user: str) -> bool:
    if "store" in prefix.options or any(environment.get(name) for name in _VARIABLES):
        return True
    path = prefix.options.get("config") or find_file(environment, lambda: _home(user))
    try:
        with open(path or os.devnull, "rb") as file:
            data = tomllib.load(file)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, RecursionError):  # `oncecron run` says what is wrong with it
        return True
    job: Any = data.get("job")
    section = job.get(prefix.options["key"]) if isinstance(job, dict) else None
    tables = (data, section if isinstance(section, dict) else {})
    return any(table.get(name) for table in tables for name in _STORES)


def _home(user: str) -> str:
    if user == own_name():
        return home_directory()
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:  # cron runs no line of such a user
        return "/nonexistent"


def _login_environment() -> dict[str, str]:
    """Return the variables of oncecron that pam_env gives to the jobs of Debian's cron."""
    found = {}
    with contextlib.suppress(OSError), open(_OF_LOGINS, encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.strip().removeprefix("export ").partition("=")
            if name.startswith("ONCECRON_"):
                found[name] = value.strip("\"'")
    return found
