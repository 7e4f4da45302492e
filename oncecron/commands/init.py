"""`oncecron init`: create or upgrade the schema and grant rights."""

from __future__ import annotations

from oncecron.commands import STORE_OPTIONS, TableCommand, people_store
from oncecron.options import Option

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
        "Role that reads history and locks.",
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
    Option("print-sql", "flag", "Print the SQL for an empty store and do nothing.", "", "Options"),
    *STORE_OPTIONS,
)


def _initialise(given: dict[str, str], _words: list[str]) -> int:
    from oncecron import render
    from oncecron.config import Settings
    from oncecron.model import Roles

    settings = Settings(OPTIONS, given)
    roles = Roles(
        run=_names(settings["run-role"]),
        read=_names(settings["read-role"]),
        job=_names(settings["job-role"]),
    )
    stream = render.standard_output()
    with people_store(settings) as store:
        answer = store.schema_sql(roles) if settings["print-sql"] else store.initialise(roles)
    render.say(answer, stream)
    return 0


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


COMMAND = TableCommand(
    "init",
    OPTIONS,
    _initialise,
    short="Create or upgrade the store's schema.",
    about="Create or upgrade the store's schema and grant rights. Safe when many hosts do it at once, and as often as "
    "you like. Firings install the schema into an empty database by themselves where they may.",
)
