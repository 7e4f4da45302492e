"""What the sentences of many commands have in common: names, times and authors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.config.options import KEY_RULE, is_key
from oncecron.core.errors import UsageError
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.masking import valid
from oncecron.core.suggestion import suggestion as suggestion  # noqa: PLC0414 - of many commands
from oncecron.core.suggestion import unknown_host as unknown_host  # noqa: PLC0414
from oncecron.core.suggestion import unknown_key as unknown_key  # noqa: PLC0414
from oncecron.core.text import Clock
from oncecron.core.tick import named_tick
from oncecron.host.names import host_name, user_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from oncecron.stores.reader import Reader

_RECENT = 1000  # records whose hosts count as known


def valid_key(word: str) -> str:
    """Return a key from the command line. Raises `UsageError` for a word that no job can have as its key."""
    if not word:
        raise UsageError("the key is empty (an unset variable?)")
    if not {"*", "?", "["}.isdisjoint(word):
        raise UsageError(f"{word!r} is a pattern; name a key: `oncecron jobs` lists them")
    if not is_key(word):
        raise UsageError(f"{word!r} is not a valid key; {KEY_RULE}")
    return word


def valid_text(text: str | None, if_empty: str) -> str | None:
    """Return a text from the command line as it is recorded. Raises `UsageError` with `if_empty`."""
    if text is None:
        return None
    if not text.strip():
        raise UsageError(if_empty)
    return valid(text)


def valid_tick(text: str | None) -> str | None:
    """Return the name of a tick from the command line as it is recorded. Raises `UsageError`."""
    known = valid_text(text, "--tick is empty (an unset variable?); leave it out to see all")
    try:
        return None if known is None else named_tick(text or "").text
    except ValueError as error:
        raise UsageError(f"--tick: {error}") from error


def author() -> str:
    """Return the user of this command: USER@HOST."""
    return f"{user_name()}@{host_name()}"


def local_time(time: float | None) -> str:
    """Return a time in this host's zone."""
    return Clock(utc=False).seconds(time)


def known_keys(store: Reader) -> set[str]:
    """Return the keys that a host has fired."""
    return {part.key for part in store.job_keys()}


def known_hosts(store: Reader) -> set[str]:
    """Return the hosts that have fired a key or are drained, and those of the newest records."""
    recent = HistoryQuery(limit=_RECENT)
    return {
        *(row.host for row in store.key_hosts()),
        *(execution.host for execution in store.history(recent)),
        *(skip.host for skip in store.skips(recent)),
        *(pause.host for pause in store.pauses() if pause.host),
    }


def refuse_unknown_keys(keys: Iterable[str], known: Collection[str], store: Reader) -> None:
    """Raise `NotFoundError` for the first of some keys that no host has fired."""
    for key in sorted({*keys}.difference(known)):
        raise unknown_key(key, known, (row.host for row in store.key_hosts()))
