"""`oncecron items`: the lists of items, the items of one list, and how to mend some of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from oncecron.cli import output, table
from oncecron.cli.command import (
    QUERY_OPTIONS,
    TableCommand,
    completer,
    incomplete,
    store_reader,
    writer,
)
from oncecron.cli.sentences import author, suggestion, valid_key, valid_tick
from oncecron.cli.table import Kind
from oncecron.config.options import Option, in_group
from oncecron.config.settings import Settings
from oncecron.core.errors import NotFoundError, UsageError
from oncecron.core.suggestion import not_one_of
from oncecron.core.text import count
from oncecron.host.stderr import complain
from oncecron.stores.address import shell_quoted
from oncecron_each.item_model import ITEM_STATES, MENDABLE_STATES
from oncecron_each.reports import ItemQuery, ItemRow, ListView, item_lists, items, mend_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.log.state_kinds import StateKind
    from oncecron.stores.reader import Reader
    from oncecron_each.item_model import MendedState

_BETWEEN_ITEMS = "\0"  # no argument can contain it
_STANDARD_INPUT = "-"
_ALL_LISTS = "`oncecron items` shows the lists of all keys"

_MENDS: dict[str, MendedState] = {"retry": "queued", "done": "done"}
"""The options that change items, and the state that they give them."""


def _kind_of_losses(count: str) -> StateKind:
    return "nothing" if count == "0" else "bad"


ITEMS = Kind(
    ItemRow._fields, ("since", "not_before"),
    (
        table.number("position", "POSITION", 4), table.state("state"), table.number("attempts", "ATTEMPTS", 5),
        table.number("execution_id", "EXECUTION", 6), table.time("since", "SINCE", 3),
        table.time("not_before", "RETRY", 2), table.field("item", "ITEM", 0, 16, keeps_end=True),
        table.field("reason", "REASON", 1, 16, folds=True),
    ),
)  # fmt: skip
LISTS = Kind(
    ListView._fields, ("loaded_at",),
    (
        table.key(), table.tick(1), table.time("loaded_at", "LOADED", 5),
        table.number("total", "TOTAL", 1), table.number("queued", "QUEUED", 3), table.number("taken", "TAKEN", 4),
        table.number("done", "DONE", 2), table.number("failed", "FAILED", 2),
        *(table.number(name, name.upper(), 1, kind=_kind_of_losses) for name in ("lost", "dead")),
    ),
)  # fmt: skip

OPTIONS = (
    *in_group(
        "Which items",
        Option(
            "tick", "text", "Show the items of this tick instead of those of the newest list.", "TICK",
        ),
        Option(
            "state", "text", "Show only items in these states: queued, taken, done, failed (waits for its retry), "
            "lost (in doubt), dead (given up).", "STATE,...", completion=ITEM_STATES,
        ),
        Option(
            "item", "text", "Show only this item: a line of the list, or the `id` of a JSON object. Repeatable. -: "
            "those on the lines of standard input.", "ITEM", repeatable=True, joined_by=_BETWEEN_ITEMS,
        ),
    ),
    Option(
        "retry", "flag",
        "Queue items again instead of showing them: those that are lost, or those of --state or --item.",
    ),
    Option(
        "done", "flag",
        "Mark items as done instead of showing them: those that are lost, or those of --state or --item.",
    ),
    *QUERY_OPTIONS,
)  # fmt: skip


def _items(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    states, tick = _states(settings), valid_tick(settings["tick"])
    answer = writer(ITEMS if words else LISTS, settings)
    with store_reader(settings) as store:
        if not words:
            needs_key = ("tick", "state", "item", *_MENDS)
            if unused := next(filter(settings.is_typed, needs_key), None):
                raise UsageError(f"--{unused} needs a KEY; {_ALL_LISTS}")
            answer.write(item_lists(store))
            return incomplete(store)
        view = _list(store, valid_key(words[0]), tick)
        query = _query(view, states, settings)
        if mends := next(filter(settings.__getitem__, _MENDS), None):
            output.say(_mend(store, query, _MENDS[mends], settings), output.standard_output())
            return incomplete(store)
        answer.write(items(store, query))
        if answer.is_watched:
            complain(_summary(view))
    return incomplete(store)


def _states(settings: Settings) -> tuple[str, ...]:
    """Return the wanted states. Raises `UsageError` for one that does not exist, or that nobody can change."""
    for option, value in (
        ("state", settings["state"]),
        *(("item", each) for each in _item_names(settings)),
    ):
        if value == "":
            raise UsageError(f"--{option} is empty (an unset variable?); leave it out to see all")
    mends = [option for option in _MENDS if settings[option]]
    if len(mends) > 1:
        raise UsageError("--retry and --done exclude each other; leave one of them out")
    states = tuple(word.strip() for word in (settings["state"] or "").split(",") if word.strip())
    for state in states:
        if state not in ITEM_STATES:
            raise UsageError(f"--state: {not_one_of(state, ITEM_STATES)}")
        if mends and state not in MENDABLE_STATES:
            raise UsageError(
                f"--{mends[0]}: items that are {state} stay as they are; use --state lost, dead or failed"
            )
    if states or not mends:
        return states
    return MENDABLE_STATES if settings.is_typed("item") else ("lost",)


def _list(store: Reader, key: str, tick: str | None) -> ListView:
    """Return the list of a tick, or the newest one of the key. Raises `NotFoundError`."""
    lists = item_lists(store, key)
    if not lists:
        others = {view.items_of.key for view in item_lists(store)}
        raise NotFoundError(f"key {key} has no items{suggestion(key, others, _ALL_LISTS)}")
    found = next((view for view in lists if tick in (None, view.items_of.tick)), None)
    if found is None:
        known = ", ".join(view.items_of.tick for view in lists[:3])
        raise NotFoundError(
            f"key {key} has no items of the tick {tick}; its newest lists are of: {known}"
        )
    return found


def _query(view: ListView, states: tuple[str, ...], settings: Settings) -> ItemQuery:
    named = dict.fromkeys(_identities(settings))
    identities = None if settings["item"] is None else list(named)
    return ItemQuery(view.items_of, states, identities)


def _item_names(settings: Settings) -> list[str]:
    text: str | None = settings["item"]
    return [] if text is None else text.split(_BETWEEN_ITEMS)


def _identities(settings: Settings) -> Iterator[str]:
    for name in _item_names(settings):
        if name == _STANDARD_INPUT:
            lines = os.fdopen(0, "rb", closefd=False).read().split(b"\n")
            yield from (line.decode("utf-8", "surrogateescape") for line in lines if line)
        else:
            yield name


def _mend(store: Reader, query: ItemQuery, state: MendedState, settings: Settings) -> str:
    mended = mend_items(store, query, state, author=author())
    key, tick = query.items_of
    items = count(mended, "item")
    others = 0 if query.identities is None else len(query.identities) - mended
    stay = "stays as it is" if others == 1 else "stay as they are"
    unchanged = f"; {others} of those named {stay}" if others else ""
    if state == "done":
        return f"marked {items} of key {key} as done{unchanged}"
    again = settings.command(f"each --key {key} --tick {shell_quoted(tick)} --again -- COMMAND")
    return f"queued {items} of key {key} again{unchanged}; if no slot of the tick is running, start one: {again}"


def _summary(view: ListView) -> str:
    counts = view.counts
    states = ", ".join(
        f"{getattr(counts, state)} {state}" for state in ITEM_STATES if getattr(counts, state)
    )
    return f"key {view.items_of.key}, tick {view.items_of.tick}: {counts.total} items: {states or 'none'}"


def _keys(store: Reader) -> set[str]:
    return {view.items_of.key for view in item_lists(store)}


COMMAND = TableCommand(
    "items", OPTIONS, _items,
    about="Show the items of the newest list of a key, or of one tick, in the order of the list. Without KEY, show "
    "one line for each list, with how many of its items are in which state. An item is lost (in doubt) if the host "
    "that had taken it died: the command may have run for it or not.",
    examples=(
        "oncecron items",
        "oncecron items digest --state lost,dead",
        "oncecron items digest --item ann --item bob --done",
        "oncecron items digest --item - --retry <not-sent",
        "oncecron items digest --retry",
    ),
    words=click.Argument(["words"], metavar="[KEY]", required=False, shell_complete=completer(_keys)),
)  # fmt: skip
