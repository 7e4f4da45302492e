"""Once per item: what the commands of `each` wrote of their items, and what is recorded of them.

repeated    without `--in-doubt retry` no item begins twice
beside      no two commands work on one item at a time
untrue      what is recorded as done has ended; what has begun is not queued as if it had not
left-out    of a list that was fired when all was quiet every item is done
"""

from collections import Counter
from collections.abc import Iterator

from oncecron_drill.history import CALM_TICK, ItemEvent
from oncecron_drill.rules.joined import Joined, undone
from oncecron_drill.rules.verdict import Violation


def items(joined: Joined) -> Iterator[Violation]:
    """Every item as promised."""
    history = joined.history
    retried = set(history.head.get("retried", ()))
    for key in history.head.get("items", {}):
        of_key = [event for event in history.items if event.key == key]
        begun = Counter((event.tick, event.item) for event in of_key if event.event == "begin")
        ended = {(event.tick, event.item) for event in of_key if event.event == "end"}
        if key not in retried:
            yield from _repeated(joined, key, of_key, begun)
        yield from _beside(joined, of_key)
        states = {
            (row["tick"], row["item"]): row["state"]
            for row in history.log.items
            if row["key"] == key
        }
        yield from _untrue(key, states, begun, ended, is_retried=key in retried)
        yield from _left_out(joined, key, states)


def _repeated(
    joined: Joined, key: str, events: list[ItemEvent], begun: Counter[tuple[str, str]]
) -> Iterator[Violation]:
    for (tick, item), times in begun.items():
        if times > 1:
            moments = [
                event.at
                for event in events
                if (event.event, event.tick, event.item) == ("begin", tick, item)
            ]
            hole = all(joined.forgets(at, at) for at in sorted(moments)[:-1])
            why = ": the store may have lost that it was drawn" if hole else ""
            sentence = f"item {item} of {key} was begun {times} times{why}"
            yield Violation("repeated", sentence, key, tick, moments, hole=hole)


def _beside(joined: Joined, events: list[ItemEvent]) -> Iterator[Violation]:
    for event in events:
        if event.event == "overlap":
            of_it = [
                other for other in events if (other.tick, other.item) == (event.tick, event.item)
            ]
            hole = any(
                other.event == "begin" and other.at < event.at
                and _is_excused(joined, other, of_it, event.at)
                for other in of_it
            )  # fmt: skip
            why = ": wrapper and guard of the first could not act" if hole else ""
            yield Violation(
                "beside", f"two commands worked on item {event.item} of {event.key} at once{why}",
                event.key, event.tick, [event.at], hole=hole,
            )  # fmt: skip


def _is_excused(joined: Joined, begun: ItemEvent, of_it: list[ItemEvent], since: float) -> bool:
    """Return whether a command was still at work at this moment, and nobody could have ended it by then."""
    ends = [
        event.at
        for event in of_it
        if (event.event, event.firing) == ("end", begun.firing) and event.at > begun.at
    ]
    until = min(ends, default=since)
    return until >= since and joined.could_not_act(begun.firing, since, until)


def _untrue(
    key: str, states: dict[tuple[str, str], str], begun: Counter[tuple[str, str]],
    ended: set[tuple[str, str]], *, is_retried: bool,
) -> Iterator[Violation]:  # fmt: skip
    for (tick, item), state in states.items():
        if state == "done" and (tick, item) not in ended:
            yield Violation(
                "untrue", f"item {item} of {key} is recorded as done, and has not ended", key, tick
            )
        if state == "queued" and begun[tick, item] and not is_retried:
            yield Violation(
                "untrue", f"item {item} of {key} is still queued, and has begun", key, tick
            )


def _left_out(joined: Joined, key: str, states: dict[tuple[str, str], str]) -> Iterator[Violation]:
    quiet = joined.history.quiet
    # A machine with too much to do loses leases, and the pulse waits too.
    is_slow = any(undone(fault) >= quiet for fault in joined.history.faults)
    allowed = ("done", "lost") if is_slow else ("done",)
    for number in range(1, joined.history.head["items"][key] + 1):
        state = states.get((CALM_TICK, str(number)))
        if state not in allowed:
            yield Violation(
                "left-out", f"item {number} of {key} is {state}, though it was fired when all was quiet",
                key, CALM_TICK, [quiet],
            )  # fmt: skip
