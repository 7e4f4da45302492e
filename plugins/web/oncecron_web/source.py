"""Opens the store and its log anew for each reading, and counts what they are asked."""

from __future__ import annotations

import contextlib
import math
from itertools import tee
from typing import TYPE_CHECKING

from oncecron.core.errors import NotFoundError, OncecronError, UsageError
from oncecron.log.sources import sources_of
from oncecron.stores import open_reader
from oncecron_web.shared_readings import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from oncecron.config.settings import Settings
    from oncecron.log.sources import Sources
    from oncecron.stores.address import Address
    from oncecron.stores.api import Row
    from oncecron.stores.reader import Reader

_FEW = 100
"""Rows at most of an answer that is kept until the end of a reading."""
_OF_ALL_KEYS = ("keys", "key_hosts", "leases", "pauses", "each/item_lists")


class Source:
    """Where a server reads, as long as it runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._named: set[str] = set()
        """Rows that cannot be read, of which standard error has a line."""

    def read(self, ask: Callable[[Sources, Settings], object]) -> Found:
        """Return what a question finds. Raises what it raises."""
        count = _Count()
        try:
            with self._stores(count) as (store, log):
                found = ask(sources_of(self._settings, store, log), self._settings)
        except (NotFoundError, UsageError):
            raise
        except OncecronError:  # of a store whose password was rotated, perhaps
            with contextlib.suppress(OncecronError):
                self._settings = self._settings.reread()
            raise
        return Found(found, count.queries)

    @contextlib.contextmanager
    def _stores(self, count: _Count) -> Iterator[tuple[Reader, Reader]]:
        with contextlib.ExitStack() as stack:

            def opened(address: Address) -> Reader:
                reader = open_reader(address, self._settings["namespace"])
                reader.named = self._named
                stack.callback(reader.close)
                stack.callback(count.add(reader))
                return reader

            store, beside = opened(self._settings.address()), self._settings.log()
            yield store, opened(beside) if beside else store


class _Count:
    """How many questions readers were asked. The same question is asked once in a reading."""

    def __init__(self) -> None:
        self.queries = 0

    def add(self, reader: Reader) -> Callable[[], None]:
        """Count the questions to a reader; to connect is one. Return what forgets the answers, which may be long."""
        self.queries += 1
        rows = reader.rows
        known: dict[str, Iterator[Row]] = {}

        def counted(view: str, **bounds: Any) -> Iterator[Row]:
            name = f"{view} {bounds}"
            if name not in known:
                self.queries += 1
                found = rows(view, **bounds)
                if view not in _OF_ALL_KEYS and (bounds.get("limit") or math.inf) > _FEW:
                    return found
                known[name] = found
            # as far as it is read: behind the limit may be a million rows
            known[name], again = tee(known[name])
            return again

        def forget() -> None:
            known.clear()
            del reader.rows  # the two name each other, and a collection of such cycles is rare

        reader.rows = counted  # type: ignore[method-assign]
        return forget
