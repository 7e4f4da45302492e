"""Findings on the values that hosts must share: the key, the name of the tick, the store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.crontab.lint.run_arguments import is_literal
from oncecron.crontab.per_host import host_in
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.crontab.lint.linted_entry import Diagnostic, Invocation, LintedEntry

_OF_A_FIRING = re.compile(
    r"\$\$|\$\{?(?:RANDOM|PPID|BASHPID|SECONDS)\b|(?:\$\(|`)\s*(?:uuidgen|mktemp|shuf)\b"
)
_DATE = re.compile(r"(?:\$\(|`)\s*(?:/usr)?(?:/bin/)?date\b([^)`]*)")
_SECONDS = re.compile(r"%[sSNTcXr]|-I(?:s|n)|=(?:s|n)|-R\b")
_ONE_HOST = ("local", "sqlite:")
_VARIABLE = "ONCECRON_STORE"


def check_values(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield keys and ticks that differ between hosts or firings, and ticks that never change."""
    for invocation in line.invocations:
        key, tick = invocation.key or "", invocation.options.get("tick", "")
        what = host_in(key) or _varying(key)
        if what is None and _DATE.search(key):
            what = "the date"
        if what:
            yield line.diagnostic(
                "key",
                f"{what} is a part of the key, so firings have different keys and do not exclude each other",
                "use the same key on every host at every time; for the date, use --schedule or --tick",
            )
        if not line.entry.is_reboot:
            adds = invocation.subcommand == "each" and "again" in invocation.options
            yield from _check_tick(line, tick, may_stay=adds)


def _check_tick(line: LintedEntry, tick: str, *, may_stay: bool) -> Iterator[Diagnostic]:
    """`may_stay`: each firing adds the items that are new to the list of the same tick."""
    what = host_in(tick) or _varying(tick) or _seconds(tick)
    if what:
        yield line.diagnostic(
            "tick",
            f"{what} is a part of --tick, so each host starts another tick: all of them run the command",
            f"use --schedule '{line.entry.schedule}'",
        )
    elif not may_stay and tick and is_literal(tick) and not any(map(str.isdigit, tick)):
        yield line.diagnostic(
            "tick",
            f"--tick {tick} never changes: after the first run, every firing is skipped",
            f"use --schedule '{line.entry.schedule}', or a name with the date in it",
        )


def _varying(text: str) -> str | None:
    found = _OF_A_FIRING.search(text)
    return f"`{found[0].lstrip('`')}`" if found else None


def _seconds(text: str) -> str | None:
    """Return the date with seconds in a text, None if there is none."""
    found = next((date for date in _DATE.finditer(text) if _has_seconds(date[1])), None)
    return "a time with seconds" if found else None


def _has_seconds(arguments: str) -> bool:
    return ("+" not in arguments and not arguments.strip()) or bool(_SECONDS.search(arguments))


def check_stores(files: Sequence[Sequence[LintedEntry]]) -> Iterator[Diagnostic]:
    """Yield lines of several hosts whose stores the hosts do not share."""
    guarded = [[(line, each) for line in lines for each in line.invocations] for lines in files]
    if sum(map(bool, guarded)) <= 1:
        return
    first: dict[str, tuple[LintedEntry, str]] = {}
    for line, invocation in [pair for of_file in guarded for pair in of_file]:
        store = _store_of(line, invocation)
        if store.startswith(_ONE_HOST):
            yield line.diagnostic(
                "store",
                f"the store {store.partition(':')[0]} is of one host: each host runs the command",
                "use a store that all hosts share: PostgreSQL or Redis",
            )
        elif store and is_literal(store) and invocation.key:
            there, other = first.setdefault(invocation.key, (line, store))
            if other != store and there.source is not line.source:
                yield line.diagnostic(
                    "store",
                    f"key {invocation.key} has the store {masked(store)} here and {masked(other)} in "
                    f"{there.source.name}: each host runs the command",
                    "use the same store on every host",
                )


def _store_of(line: LintedEntry, invocation: Invocation) -> str:
    return invocation.options.get("store") or line.environment.get(_VARIABLE, "")
