"""`oncecron locks`: who holds what, as the store sees it now."""

from __future__ import annotations

from oncecron.commands import (
    OUTPUT_OPTIONS,
    STORE_OPTIONS,
    TableCommand,
    output_format,
    people_store,
)

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (*OUTPUT_OPTIONS, *STORE_OPTIONS)


def _show(given: dict[str, str], _words: list[str]) -> int:
    from oncecron import clock, render
    from oncecron.config import Settings

    settings = Settings(OPTIONS, given)
    stream = render.standard_output()
    style = render.style_for(stream, output_format(settings), utc=settings["utc"])
    with people_store(settings) as store:
        leases = store.leases()
    now = clock.wall()  # the store's clock where it is this machine's
    render.Writer(render.LEASES, style, stream).write(
        view._replace(asked_at=view.asked_at or now) for view in leases
    )
    return 0


COMMAND = TableCommand(
    "locks",
    OPTIONS,
    _show,
    short="Show the leases: who runs what now.",
    about="Show the leases: holder, since when, age of the last heartbeat, time left, fencing token. held: its holder "
    "lives; stale: expired, or its holder is silent; orphaned: PostgreSQL has given its session lock back.",
)
