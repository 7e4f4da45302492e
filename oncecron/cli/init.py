"""`oncecron init`: create or upgrade the schema, of store and log, and grant rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli.command import STORE_OPTIONS, TableCommand, all_inspectors, labelled
from oncecron.config.options import Option

if TYPE_CHECKING:
    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import Roles
    from oncecron.stores.api import Inspector

# ruff: noqa: PLC0415 - --help imports as little as it can

_RIGHTS = "Rights (PostgreSQL; several by commas or by repeating)"

OPTIONS = (
    Option(
        "run-role",
        "text",
        "Role that fires: it may call the functions of a firing, nothing else.",
        "ROLE",
        _RIGHTS,
        repeatable=True,
    ),
    Option(
        "read-role",
        "text",
        "Role that reads history, with what was captured, locks, jobs, why and audit.",
        "ROLE",
        _RIGHTS,
        repeatable=True,
    ),
    Option(
        "job-role",
        "text",
        "Role whose jobs check their fencing token by assert_fence.",
        "ROLE",
        _RIGHTS,
        repeatable=True,
    ),
    Option(
        "operator-role",
        "text",
        "Role that stops, releases, pauses, resumes, drains and undrains; it sees leases and executions, none of "
        "their output.",
        "ROLE",
        _RIGHTS,
        repeatable=True,
    ),
    Option("print-sql", "flag", "Print the SQL for an empty store and do nothing.", "", "Options"),
    *STORE_OPTIONS,
)


def _initialise(given: dict[str, str], _words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import Roles

    settings = Settings(OPTIONS, given)
    roles = Roles(
        run=_names(settings, "run-role"),
        read=_names(settings, "read-role"),
        job=_names(settings, "job-role"),
        operate=_names(settings, "operator-role"),
    )
    stream = output.standard_output()
    with all_inspectors(settings) as stores:
        answer = (_sql if settings["print-sql"] else _prepared)(stores, roles)
    output.say(answer, stream)
    return 0


def _prepared(stores: dict[str, Inspector], roles: Roles) -> str:
    """Prepare all; the roles go to those that have any."""
    some = any(store.has_roles for store in stores.values())
    return labelled(
        {
            name: store.initialise(roles if store.has_roles or not some else type(roles)())
            for name, store in stores.items()
        }
    )


def _sql(stores: dict[str, Inspector], roles: Roles) -> str:
    """Return what a DBA is to run: beside a store that is none of theirs, the SQL of the log alone."""
    databases = [store for store in stores.values() if store.has_roles] or [stores["store"]]
    return "\n".join(store.schema_sql(roles) for store in databases)


def _names(settings: Settings, option: str) -> tuple[str, ...]:
    from oncecron.core.errors import UsageError
    from oncecron.core.stderr import valid

    text = settings[option]
    if text is None:
        return ()
    names = tuple(valid(name.strip()) for name in text.split(",") if name.strip())
    if not names:
        raise UsageError(f"--{option}: no role is named (an unset variable?)")
    return names


COMMAND = TableCommand(
    "init",
    OPTIONS,
    _initialise,
    short="Create or upgrade the store's schema.",
    about="Create or upgrade the schema of the store, and of the log beside it, and grant rights. Safe when many hosts "
    "do it at once, and as often as you like. Firings install the schema into an empty database by themselves where "
    "they may.",
)
