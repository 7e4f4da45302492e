"""What wrap warns of in wrapped crontabs: no store, keys that two users share, variables that stop oncecron itself.

A line finds its store by `--store`, by the variables of the crontab, by /etc/environment (where cron uses pam_env), or
by the configuration file that `oncecron run` would find for the user whom cron runs it as.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from typing import TYPE_CHECKING, Any

from oncecron.config.file import find_file
from oncecron.config.file_reader import read_private
from oncecron.core.errors import ConfigurationError
from oncecron.core.text import visible
from oncecron.host.stderr import complain
from oncecron.stores.address import home_directory
from oncecron_crontab.cli.user_crontab import own_name
from oncecron_crontab.lint.keys import check_users
from oncecron_crontab.lint.line import LintedCrontab, linted_entries
from oncecron_crontab.prefix import read_prefix
from oncecron_crontab.scanner import scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncecron_crontab.cli.files import Plan
    from oncecron_crontab.prefix import Prefix
    from oncecron_crontab.scanner import Crontab

_STORES = ("store", "store_file")
_VARIABLES = ("ONCECRON_STORE", "ONCECRON_STORE_FILE")
_LONGEST_LINE = 4096
_OF_LOGINS = "/etc/environment"


def warn_of_missing_store(plan: Plan) -> None:
    """Warn if cron runs wrapped lines of this host for a user who has no store."""
    source, crontab, rewritten = plan
    if not (source.user or source.is_system):
        return
    after = scan(rewritten.data, system=crontab.system, cron=crontab.cron)
    for user in _users_without_store(after, source.user):
        complain(
            f"{visible(source.path)}: no store is configured for {visible(user)}, so the wrapped lines will exit 78; "
            "set `store` in /etc/oncecron.toml"
        )


def warn_of_python_home(plan: Plan) -> None:
    """Warn if a variable of the crontab stops the Python of the wrapped lines before it gets to oncecron."""
    source, crontab, rewritten = plan
    after = scan(rewritten.data, system=crontab.system, cron=crontab.cron)
    for entry in after.entries():
        prefix = read_prefix(entry.command)
        script = shutil.which(os.fsdecode(prefix.program)) if prefix else None
        if script and after.environment(entry).get(b"PYTHONHOME") and _heeds_variables(script):
            complain(
                f"{source.place_of(entry.number)}: PYTHONHOME stops oncecron itself; to let it ignore that: "
                f"`sed -i '1s/$/ -E/' {visible(os.path.realpath(script))}`"
            )
            return


def _heeds_variables(script: str) -> bool:
    with contextlib.suppress(OSError), open(script, "rb") as file:
        interpreter, *options = file.readline(_LONGEST_LINE).split() or [b""]
        isolated = any(word[:1] == b"-" and {*word} & {*b"EI"} for word in options)
        return interpreter.startswith(b"#!") and not isolated
    return False


def warn_of_shared_keys(plans: Sequence[Plan]) -> None:
    """Warn if lines of two users get one key, as lint does."""
    lines = []
    for source, crontab, rewritten in plans:
        after = scan(rewritten.data, system=crontab.system, cron=crontab.cron)
        linted = LintedCrontab(source.path, after, source.owner)
        lines += linted_entries(linted, {}, crontab.cron)
    sources = {plan.source.path: plan.source for plan in plans}
    for found in check_users(lines):
        complain(
            visible(f"{sources[found.file].place_of(found.line)}: {found.message}; {found.cure}")
        )


def _users_without_store(crontab: Crontab, owner: str | None) -> list[str]:
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
    import tomllib  # noqa: PLC0415 - not for --help

    path = prefix.options.get("config") or find_file(environment, lambda: _home(user))
    try:  # it may be another user's
        text, _ = read_private(path or os.devnull, "configuration file", trusting=True)
        data = tomllib.loads(text)
    except ConfigurationError as error:  # `oncecron run` says what is wrong with it
        return not isinstance(error.__cause__, FileNotFoundError)
    except (ValueError, RecursionError):
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
