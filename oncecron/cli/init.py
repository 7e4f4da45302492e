"""`oncecron init`: create or upgrade the schema of the store and the log, and grant rights."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import STORE_OPTIONS, TableCommand, all_readers, with_names
from oncecron.cli.progress_bar import progress_bar
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core.errors import UsageError
from oncecron.core.log_rows import LeastRetention, Roles
from oncecron.core.masking import valid
from oncecron.core.units import typed_duration
from oncecron.host.stderr import complain
from oncecron.stores import open_reader
from oncecron.stores.address import Address

if TYPE_CHECKING:
    from oncecron.stores.reader import Reader

_KEPT = "Least retention"
_RIGHTS = "Rights (PostgreSQL; separate several roles by commas, or repeat the option)"

_WHERE = "Address of the store (postgresql://oncecron_owner@HOST/oncecron, redis://HOST, or local for this machine)"
_MOST_SHOWN = 10

_SWITCH = "stop, release, pause, resume, drain, undrain and forget"

OPTIONS = (
    *(
        Option(
            f"{name}-role", "text", f"Allow this role to {what}", "ROLE", _RIGHTS, repeatable=True
        )
        for name, what in (
            ("run", "run jobs, nothing else."),
            ("read", "read: history with captured output, locks, jobs, why, audit."),
            ("job", "check fencing tokens with assert_fence in its own SQL."),
            ("operator", f"{_SWITCH}. It sees leases and executions, but not captured output."),
        )
    ),
    Option(
        "keep-executions", "duration",
        "Keep executions at least this long, even if [retention] of a host or prune has less. A new store has 7d.",
        "AGE", _KEPT,
    ),
    Option(
        "keep-skips", "duration", "Keep skips at least this long. A new store has 1d.", "AGE", _KEPT
    ),
    Option(
        "print-sql", "flag", "Print the SQL and do not run it. It creates the schema; on PostgreSQL it also upgrades "
        "an older one. Needs no connection.",
    ),
    *STORE_OPTIONS,
)  # fmt: skip


def _initialise(given: dict[str, str], _words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    streams = (sys.stdin, sys.stderr)  # None: it was closed
    is_at_terminal = all(each and each.isatty() for each in streams) and not settings["print-sql"]
    if is_at_terminal and not settings.has_store():
        settings = Settings(OPTIONS, {**given, "store": _answer(_WHERE)})
    roles = Roles(
        run=_names(settings, "run-role"),
        read=_names(settings, "read-role"),
        job=_names(settings, "job-role"),
        operate=_names(settings, "operator-role"),
    )
    least = LeastRetention(settings["keep-executions"], settings["keep-skips"])
    stream = output.standard_output()
    if settings["print-sql"] and not settings.has_store():
        unconnected = open_reader(Address("postgres", ""), settings["namespace"])
        output.write_text(unconnected.schema_sql(roles, least), stream)
        return 0
    with all_readers(settings) as stores:
        if is_at_terminal and not any(roles):
            roles = _ask_roles(next((s for s in stores.values() if s.has_roles), stores["store"]))
        answer = (_sql if settings["print-sql"] else _prepare)(stores, roles, least)
    output.say(answer, stream)
    return 0


def _ask_roles(store: Reader) -> Roles:
    """Return the roles that a person chooses; it asks only if others than the owner could get their first rights."""
    offered = store.offered_roles()
    if not offered:
        return Roles()
    shown = ", ".join([*offered[:_MOST_SHOWN], *["..."] * (len(offered) > _MOST_SHOWN)])
    complain(f"no role but the owner has rights here; roles that may log in: {shown}")
    run = _answer("Role that starts jobs on the hosts (--run-role; empty: none)")
    read = _answer(f"Role that reads the log (--read-role; empty: {run or 'none'})") or run
    return Roles(run=_split("run-role", run), read=_split("read-role", read))


def _answer(question: str) -> str:
    sys.stderr.write(f"{question}: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _prepare(stores: dict[str, Reader], roles: Roles, least: LeastRetention) -> str:
    some = any(store.has_roles for store in stores.values())
    answers = {}
    for name, store in stores.items():
        wanted = roles if store.has_roles or not some else type(roles)()
        with progress_bar(f"prepare the {name}") as progress:
            done = store.initialise(wanted, least, progress=progress)
        executions, skips = map(typed_duration, store.least_retention())
        answers[name] = f"{done}; keeps executions at least {executions}, skips at least {skips}"
    return with_names(answers)


def _sql(stores: dict[str, Reader], roles: Roles, least: LeastRetention) -> str:
    databases = [store for store in stores.values() if store.has_roles] or [stores["store"]]
    return "\n".join(store.schema_sql(roles, least) for store in databases)


def _names(settings: Settings, option: str) -> tuple[str, ...]:
    text = settings[option]
    return () if text is None else _split(option, text, is_given=True)


def _split(option: str, text: str, *, is_given: bool = False) -> tuple[str, ...]:
    """Return the names of roles in a text. Raises `UsageError`."""
    names = tuple(valid(name.strip()) for name in text.split(",") if name.strip())
    if is_given and not names:
        raise UsageError(f"--{option} is empty (an unset variable?); name a role")
    # PostgreSQL reads even the quoted name as the pseudo-role PUBLIC.
    if everybody := [name for name in names if name.lower() == "public"]:
        raise UsageError(f"--{option}: {everybody[0]} means everybody who may connect; name a role")
    return names


COMMAND = TableCommand(
    "init", OPTIONS, _initialise,
    about="Create or upgrade the schema of the store and of the log, grant rights, and set the least retention. You "
    "can run it again, and on many hosts at once. Without it, the first firing creates the schema if its role has "
    "the right to.",
    examples=(
        "oncecron init --store postgresql://oncecron_owner@db/oncecron --run-role cron --read-role cron",
        "oncecron init --print-sql --run-role cron > schema.sql",
        "oncecron init --keep-executions 90d",
    ),
)  # fmt: skip
