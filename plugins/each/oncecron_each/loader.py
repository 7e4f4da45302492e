"""Load the list of items: read it from a command or from standard input, and send it to the store in chunks.

Only one chunk is in memory. A list becomes visible in the store with its last chunk, and that is sent after the command
has succeeded: a list that breaks off, a wrong item, or a command that fails load nothing.
"""

from __future__ import annotations

import os

from oncecron.core.errors import (
    EX_DATAERR,
    EX_TEMPFAIL,
    ConfigurationError,
    OncecronError,
    StoreRefusesError,
    reason_of,
    shortage_of,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import NEVER
from oncecron.run.program import look_up, shell
from oncecron_each.item_model import LARGEST_CHUNK, LARGEST_ITEM, Chunk, Item
from oncecron_each.item_times import LOAD_CALL_TIMEOUT
from oncecron_each.runner import LEASE_LOST, Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncecron_each.item_model import DrawnItem, Loaded
    from oncecron_each.runner import Processes

_BLOCK = 1 << 16
_BOM = b"\xef\xbb\xbf"


class Loader(Runner):
    """Loads the list."""

    def run(self) -> int:
        """Load the list; return the exit status."""
        try:
            loaded = self._load()
        except Interrupted:
            return self._end_interrupted()
        except (ItemError, UnlistedError, OSError) as error:
            cause = shortage_of(error) or error
            status = getattr(cause, "exit_status", EX_DATAERR)
            status = EX_DATAERR if isinstance(error, ItemError) else status
            self._say(f"{cause}; nothing was loaded")
            return self._end("not-loaded", str(cause), status)
        if loaded is None:
            return self._end("interrupted", LEASE_LOST, EX_TEMPFAIL)
        if self._spec.verbose:
            self._say(_sentence(loaded))
        return self._end("over", _sentence(loaded), 0)

    def _load(self) -> Loaded | None:
        source = self._items.source
        given = self._processes.nothing if os.isatty(0) else 0  # a terminal: --again without a list
        descriptor, pid = (given, None) if source is None else self._list(source)
        blocks = blocks_of(descriptor, self._processes)
        items = items_in(blocks, null=self._items.null, json=self._items.json)
        loaded = None
        for chunk in chunks(items, lambda: self._check(pid), self._items.keep):
            loaded = self._send(chunk)
            if loaded is None:
                return None
            self._items.page.loading += len(chunk.items)
        return loaded

    def _send(self, chunk: Chunk) -> Loaded | None:
        def load(deadline: float) -> Loaded | None:
            return self._store.load(self._lease, self._items_of, chunk, deadline=deadline)

        return self._ask(load, LOAD_CALL_TIMEOUT)

    def _list(self, source: str) -> tuple[int, int]:
        """Start the command that lists the items; return the descriptor of its output, and its pid."""
        program = shell()
        read_end, write_end = os.pipe()
        words = [os.fsencode(word) for word in (program, "-c", source)]
        pid = self._processes.start(
            look_up(program, program), words, self._environment, {1: write_end}
        )
        os.close(write_end)
        return read_end, pid

    def _check(self, pid: int | None) -> None:
        """Wait for the command that lists the items. Raises `UnlistedError`, `Interrupted`."""
        if pid is None:
            return
        end = self._processes.finish(pid, None, None, lambda: None)
        if self._processes.stopped_by:
            raise Interrupted
        if end.status != 0:
            code = end.exit_code
            status = 128 + os.WTERMSIG(end.status) if code is None else code
            raise UnlistedError(f"--items has failed: {end.reason}", status)


def _sentence(loaded: Loaded) -> str:
    known = f", {loaded.known:,} known" if loaded.known else ""
    repeated = f", {loaded.repeated:,} repeated in the list" if loaded.repeated else ""
    return f"{loaded.added:,} items loaded{known}{repeated}"


class Interrupted(OncecronError):  # noqa: N818 - the firing is to end
    """A signal has ended the firing."""


class UnlistedError(OncecronError):
    """The command that lists the items has failed."""

    def __init__(self, message: str, exit_status: int) -> None:
        """`exit_status`: that of the command."""
        super().__init__(message)
        self.exit_status = exit_status


def chunks(
    items: Iterator[Item], check_end: Callable[[], None], keep: float | None
) -> Iterator[Chunk]:
    """Yield the chunks of a list; `check_end` raises before the last one if the list is not complete.

    `keep`: that of the `Chunk`, in seconds.
    """
    number = 0
    waiting: list[Item] = []
    for item in items:
        if len(waiting) == LARGEST_CHUNK:
            yield Chunk(number, waiting, is_last=False)
            number, waiting = number + 1, []
        waiting.append(item)
    check_end()
    yield Chunk(number, waiting, is_last=True, keep=keep)


def items_in(blocks: Iterator[bytes], *, null: bool, json: bool) -> Iterator[Item]:
    """Yield the items of a stream; empty lines are none. Raises `ItemError`."""
    end, item_of = b"\0" if null else b"\n", item_of_json if json else item_of_line
    number, rest = 0, b""
    for block in blocks:
        *lines, rest = (rest + block).split(end)
        for line in lines:
            number += 1
            if line:
                yield item_of(line, number)
        if len(rest) > LARGEST_ITEM:
            item_of(rest, number + 1)  # raises: memory must not grow with a line
    if rest:
        yield item_of(rest, number + 1)


def blocks_of(descriptor: int, processes: Processes) -> Iterator[bytes]:
    """Yield what can be read from a descriptor, to its end. Raises `Interrupted`, `OSError`."""
    while True:
        if not processes.sleep(NEVER, descriptor):
            raise Interrupted
        data = os.read(descriptor, _BLOCK)
        if not data:
            return
        yield data


class ItemError(ConfigurationError):
    """An item cannot be loaded."""


def item_of_line(line: bytes, number: int) -> Item:
    """Return the item that is a line, or a word that ends with NUL (`-0`). Raises `ItemError`."""
    text = _text_of(line, number)
    return Item(text, text)


def item_of_json(line: bytes, number: int) -> Item:
    """Return the item that is a JSON object on a line: its `id`, a string or an integer, is its identity.

    The payload is the line as it is. Raises `ItemError`.
    """
    import json  # noqa: PLC0415 - only with --json

    text = _text_of(line, number)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ItemError(f"item {number} is not JSON: {reason_of(error)}") from error
    identity = value.get("id") if isinstance(value, dict) else None
    if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
        raise ItemError(f"item {number} has no id; each line must be an object with an `id`")
    return Item(_text_of(str(identity).encode("utf-8", "surrogatepass"), number), text)


def check_drawn(item: DrawnItem) -> None:
    """Raise `StoreRefusesError` for an item that no load accepts: another program has written to the store."""
    for text in (item.identity, item.payload):
        if len(text) <= LARGEST_ITEM // 4 and text.isprintable():
            continue  # as most are: no NUL, and not too long in UTF-8
        try:
            _text_of(text.encode("utf-8", "surrogatepass"), item.position)
        except ItemError as error:
            raise StoreRefusesError(
                f"item {item.position} was changed in the store by another program; load it again under another --tick"
            ) from error


def _text_of(data: bytes, number: int) -> str:
    """Return an item as text. `number`: which item of the list it is, from 1."""
    if len(data) > LARGEST_ITEM:
        raise ItemError(
            f"item {number} has {len(data)} bytes, and an item may have {LARGEST_ITEM}; list a name or an id, and let "
            "the command read the rest"
        )
    if number == 1 and data.startswith(_BOM):
        raise ItemError(
            "item 1 begins with a byte order mark (BOM), which would be part of it; write the list without one"
        )
    if b"\0" in data:
        raise ItemError(f"item {number} contains a NUL; use -0 for a list that NULs separate")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ItemError(f"item {number} is not valid UTF-8 (byte {error.start + 1})") from error
