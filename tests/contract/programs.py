"""Random programs over a store: what three hosts and the people do, one step after the other.

A step names an operation, its host and its options. `Program` gives every store the same firings and records. `World`
does a step on one store and returns the answer in a form that all stores share: ids and tokens by their order, times
within seconds, and nothing that only one kind of store knows.

Some things are left out, because the contract lets stores differ there:
- a store that loses data, and a store whose clock differs from the host's;
- a session lock that is held or freed apart from its lease (`stale`, and `orphaned` within two heartbeats);
- `listen`, `evict` and `watch_fd`;
- calls for an execution that retention has removed.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from hosts import KEY, Host, ending, execution_record, minute, skip_record
from hypothesis import strategies as st
from servers import eventually

from oncecron.core import clock
from oncecron.core.errors import OncecronError
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import AskAgain, Firing, Lease, Output, Refusal, Request, Retention
from oncecron.core.tick import NO_TICK, named_tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract_stores import StoreKind
    from hypothesis.strategies import SearchStrategy

HOSTS = ("a", "bb", "ccc")
PEOPLE = "root@desk"
SILENCE = 25.0
"""Seconds: more than two heartbeats, less than half a lease."""
TICKS = {
    "m1": minute(41),
    "m2": minute(42),
    "m3": minute(43),
    "none": NO_TICK,
    "n1": named_tick("n1"),
    "m1 by name": named_tick(minute(41).text or ""),
    "ahead": named_tick("2999-01-01T00:00Z"),
}
_NEARLY = 15.0


class Moment(float):
    """A time that equals another one if they are within seconds: no two stores are asked in the same instant."""

    def __eq__(self, other: object) -> bool:
        """Compare within seconds."""
        return isinstance(other, float) and abs(self - other) < _NEARLY

    def __ne__(self, other: object) -> bool:
        """Compare within seconds."""
        return not self == other

    __hash__ = None  # type: ignore[assignment]


class Step(NamedTuple):
    """One step of a program."""

    what: str
    host: int
    how: dict[str, Any]

    def __str__(self) -> str:
        """Return a line for people."""
        how = ", ".join(
            name if value is True else f"{name}={value}"
            for name, value in self.how.items()
            if value is not None and value is not False
        )
        return f"{HOSTS[self.host]}: {self.what}{f' ({how})' if how else ''}"


def _mostly(usual: Any, *others: Any, times: int = 5) -> SearchStrategy[Any]:
    return st.sampled_from([usual] * times + list(others))


_NOTE = _mostly(None, "why", "another why", times=3)
_OUTCOMES = ("succeeded", "failed", "failed", "not-started", "stopped", "timed-out", "lost")
_TICK_NAMES = (*("m1", "m2", "m3", "none", "n1") * 3, "m1 by name", "ahead")
_HOW: dict[str, dict[str, SearchStrategy[Any]]] = {
    "claim": {
        "tick": st.sampled_from(_TICK_NAMES),
        "failover": _mostly(False, True, times=2),
        "retries": _mostly(0, 1, 2, times=2),
        "again": _mostly(False, True),
        "min_gap": _mostly(None, 30.0, 3600.0),
        "starting_deadline": _mostly(None, 1.0, 1e6),
        "lateness": _mostly(1.0, 45.0, times=2),
        "shard": _mostly(None, 0, 1, times=10),
        "schedule": _mostly(None, "* * * * *"),
        "unheard": _mostly(False, True),
    },
    "ask again": {},
    "renew": {},
    "keep": {"outcome": st.sampled_from(("failed", "timed-out")), "note": _NOTE},
    "retry": {"unheard": _mostly(False, True)},
    "finish": {
        "outcome": st.sampled_from(_OUTCOMES),
        "note": _NOTE,
        "output": _mostly(None, "wrote"),
        "request": _mostly(None, "stop", "release"),
    },
    "deliver own": {
        "outcome": st.sampled_from((*_OUTCOMES, "running")),
        "note": _NOTE,
        "output": _mostly(None, "wrote"),
        "late": _mostly(False, True, times=1),
        "twice": _mostly(False, True),
    },
    "deliver unnumbered": {},
    "deliver other": {
        "tick": st.sampled_from(_TICK_NAMES[:-1]),
        "outcome": st.sampled_from((*_OUTCOMES, "running", "running")),
        "token": st.sampled_from(("high", "low", "none")),
        "shard": _mostly(None, 0, 1, times=10),
        "note": _NOTE,
        "late": _mostly(False, True, times=1),
        "twice": _mostly(False, True),
    },
    "deliver its end": {"outcome": st.sampled_from(_OUTCOMES), "note": _NOTE},
    "deliver skip": {
        "tick": st.sampled_from(_TICK_NAMES),
        "reason": st.sampled_from(("no-store", "held")),
        "twice": _mostly(False, True, times=1),
    },
    "skip": {
        "tick": st.sampled_from(_TICK_NAMES),
        "reason": st.sampled_from(("broken", "held")),
        "detail": _mostly(None, "not found", times=1),
    },
    "pass": {"seconds": _mostly(SILENCE, 100.0, 3000.0, times=2)},
    "pause": {
        "key": st.sampled_from((KEY, "*")),
        "reason": _mostly(None, "a move", times=1),
        "seconds": _mostly(None, 40.0, times=1),
    },
    "resume": {"key": st.sampled_from((KEY, "*"))},
    "drain": {},
    "undrain": {},
    "request": {"kind": st.sampled_from(("stop", "release"))},
    "release": {"execution": _mostly("last", "none", times=3), "shard": _mostly(0, 1, times=3)},
    "prune": {"older": st.sampled_from((0.0, 2000.0))},
}
_OFTEN = {"claim": 40, "finish": 15, "ask again": 9, "keep": 9, "retry": 9, "renew": 6, "pass": 9}
_OFTEN |= {"deliver own": 4, "deliver other": 4, "request": 3, "release": 3, "resume": 2}
_WHAT = [what for what in _HOW for _ in range(_OFTEN.get(what, 1))]


@st.composite
def _steps(draw: Callable[[SearchStrategy[Any]], Any]) -> Step:
    what = draw(st.sampled_from(_WHAT))
    host = draw(st.integers(0, len(HOSTS) - 1))
    return Step(what, host, draw(st.fixed_dictionaries(_HOW[what])))


PROGRAMS: SearchStrategy[list[Step]] = st.tuples(*[st.lists(_steps(), max_size=12)] * 5).map(
    lambda blocks: [step for block in blocks for step in block]
)
"""About 25 steps, of which any may go when a program is made shorter."""


class Program:
    """What is the same on all stores: firings, and records that come from elsewhere."""

    def __init__(self) -> None:
        self._hosts = [Host(None, name) for name in HOSTS]  # type: ignore[arg-type]

    def given(self, step: Step) -> Firing | None:
        """Return the firing that a step begins with, if it begins with one."""
        if "tick" not in step.how:
            return None
        how, tick = step.how, TICKS[step.how["tick"]]
        named = (name for name in ("failover", "retries", "again", "schedule") if name in how)
        parts: dict[str, Any] = {name: how[name] for name in named}
        parts["fired_at"] = (tick.instant or 0.0) + how.get("lateness", 1.0)
        if tick.rule != "name":
            parts["min_gap"] = how.get("min_gap")
        if tick.instant is not None:
            parts["starting_deadline"] = how.get("starting_deadline")
        if tick.text is not None and how.get("shard") is not None:
            parts |= {"shard": how["shard"], "shards": 2}
        parts["owner"] = str(uuid.uuid4())
        return self._hosts[step.host].firing(tick, **parts)


class Slot:
    """One process on a host: its last firing, and what it was answered."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.firing: Firing | None = None
        self.lease: Lease | None = None
        self.live = False
        """Whether it believes that it has a lease."""
        self.kept = False
        self.cut = False
        """Whether its session ended with its lease."""
        self.awaited: int | None = None

    def lost(self) -> None:
        """Go the way of a firing whose lease is over."""
        self.live = self.kept = False
        self.host.store.close()


class World:
    """One store, and the hosts that ask it."""

    def __init__(self, kind: StoreKind) -> None:
        self.kind = kind
        self.stores = [kind.firing() for _ in HOSTS]
        self.spool = Host(kind.firing(), "spool")
        self.people = kind.people()
        self.begin()

    def begin(self) -> None:
        """Forget everything."""
        for store in self.stores:
            store.close()
        self.kind.empty()
        hosts = zip(self.stores, HOSTS, strict=True)
        self.slots = [Slot(Host(store, name)) for store, name in hosts]
        self._ids: dict[int, int] = {}
        self._other: dict[str, Any] | None = None
        self._tokens = [0]

    def do(self, step: Step, firing: Firing | None) -> Any:
        """Return the answer to a step."""
        method = getattr(self, "_" + step.what.replace(" ", "_"))
        try:
            return self._shown(method(self.slots[step.host], firing, **step.how))
        except OncecronError as error:
            return (type(error).__name__, re.sub(r"\d+", "N", str(error)))

    # What a firing does

    def _claim(self, slot: Slot, firing: Firing, *, unheard: bool, **_: Any) -> Any:
        if slot.live:
            return "it runs a job"
        slot.firing, slot.lease, slot.kept, slot.awaited = firing, None, False, None
        slot.cut = False
        answer = slot.host.ask(firing)
        slot.live = isinstance(answer, Lease)
        if unheard:
            return "unheard"
        return self._heard(slot, answer)

    def _ask_again(self, slot: Slot, _: None) -> Any:
        if slot.firing is None:
            return "nothing to ask"
        before = slot.lease
        answer = self._heard(slot, slot.host.ask(slot.firing, awaited=slot.awaited))
        if slot.lease and before and slot.lease.execution_id != before.execution_id:
            slot.kept = False
        return answer

    def _heard(self, slot: Slot, answer: Any) -> Any:
        if isinstance(answer, Lease):
            slot.lease, slot.live, slot.cut = answer, True, False
            self._tokens.append(answer.token)
        elif slot.live:
            slot.lost()
        if isinstance(answer, Refusal) and answer.blocked_by:
            slot.awaited = answer.blocked_by.execution_id
        return answer

    def _renew(self, slot: Slot, _: None) -> Any:
        if slot.lease is None:
            return "no lease"
        renewed = slot.host.renew(slot.lease)
        if renewed:
            slot.lease, slot.cut = renewed, False
        else:
            slot.lost()
        return renewed

    def _keep(self, slot: Slot, _: None, *, outcome: str, note: str | None) -> Any:
        if slot.cut and slot.live:
            self._renew(slot, None)  # a new session first takes its lock again
        if slot.lease is None:
            return "no lease"
        slot.kept = slot.host.keep(slot.lease, outcome, note=note)
        if not slot.kept:
            slot.lost()
        return slot.kept

    def _retry(self, slot: Slot, _: None, *, unheard: bool) -> Any:
        if slot.lease is None or not slot.kept:
            return "nothing kept"
        answer = slot.host.retry(slot.lease)
        if unheard and isinstance(answer, Lease):
            return "unheard"
        if isinstance(answer, Lease):
            slot.lease, slot.kept, slot.cut = answer, False, False
            self._tokens.append(answer.token)
        elif answer is None:
            slot.lost()
        return answer

    def _finish(self, slot: Slot, _: None, **how: Any) -> Any:
        if slot.lease is None:
            return "no lease"
        output = Output(how["output"], 3) if how["output"] else None
        told = ending(how["outcome"], how["note"], output)
        if how["request"]:
            told = told._replace(request=Request(how["request"], PEOPLE, 15, None))
        everything = Retention(executions=1e9, skips=1e9)
        deadline = slot.host.deadline()
        in_time = slot.host.store.finish(slot.lease, told, everything, deadline=deadline)
        slot.lost()
        return in_time

    # What comes late, or from elsewhere

    def _deliver_own(self, slot: Slot, _: None, *, outcome: str, twice: bool, **how: Any) -> Any:
        if slot.lease is None or slot.firing is None:
            return "no lease"
        record = execution_record(slot.firing, slot.lease, outcome, **_told(how))
        self.spool.deliver(*[record] * (2 if twice else 1))
        if outcome != "running":
            slot.lost()
        return None

    def _deliver_unnumbered(self, slot: Slot, _: None) -> Any:
        if slot.firing is None:
            return "nothing asked"
        parts = {"attempt": None, "duration": 0.0}
        self.spool.deliver(execution_record(slot.firing, None, "not-started", **parts))
        slot.lost()
        return None

    def _deliver_other(
        self, _: Slot, firing: Firing, *, outcome: str, token: str, twice: bool, **how: Any
    ) -> Any:
        tokens = {"high": max(self._tokens) + 10**12, "low": 1, "none": None}
        parts = _told(how) | _ended(outcome)
        record = execution_record(firing, None, outcome, fencing_token=tokens[token], **parts)
        if tokens[token]:
            self._tokens.append(tokens[token])
        self._other = {**record, **_told(how)}
        self.spool.deliver(*[record] * (2 if twice else 1))
        return None

    def _deliver_its_end(self, _: Slot, __: None, *, outcome: str, note: str | None) -> Any:
        if self._other is None:
            return "no record"
        self.spool.deliver({**self._other, "outcome": outcome, "note": note, **_ended(outcome)})
        return None

    def _deliver_skip(self, _: Slot, firing: Firing, *, reason: str, twice: bool, **__: Any) -> Any:
        record = skip_record(firing, reason, clock.wall())
        self.spool.deliver(*[record] * (2 if twice else 1))

    def _skip(
        self, slot: Slot, firing: Firing, *, reason: Any, detail: str | None, **_: Any
    ) -> Any:
        refusal = Refusal(reason, detail=detail)
        self.spool.store.skip(firing, refusal, deadline=slot.host.deadline())

    def _pass(self, _: Slot, __: None, *, seconds: float) -> Any:
        """Let time pass; whose lease has ended has lost its session, which may be the reason."""
        self.kind.age(seconds)
        now = clock.wall()
        for lease in self.people.leases():
            if lease.host in HOSTS and (lease.expires_at or now) <= now:
                slot = self.slots[HOSTS.index(lease.host)]
                slot.cut = True
                slot.host.store.close()
                eventually(lambda pid=lease.backend_pid: self.kind.without_lock(pid))

    # What people do

    def _pause(self, _: Slot, __: None, *, key: str, **how: Any) -> Any:
        return self.people.pause(key, author=PEOPLE, **how)

    def _resume(self, _: Slot, __: None, *, key: str) -> Any:
        return self.people.resume(key)

    def _drain(self, slot: Slot, _: None) -> Any:
        return self.people.drain(slot.host.holder.host, author=PEOPLE)

    def _undrain(self, slot: Slot, _: None) -> Any:
        return self.people.undrain(slot.host.holder.host)

    def _request(self, slot: Slot, _: None, *, kind: Any) -> Any:
        if slot.lease is None:
            return "no lease"
        asked = Request(kind, PEOPLE, 15, 5.0)
        return self.people.request(KEY, slot.lease.shard, slot.lease.execution_id, asked)

    def _release(self, slot: Slot, _: None, *, execution: str, shard: int) -> Any:
        last = slot.lease and execution == "last"
        named = slot.lease.execution_id if last and slot.lease else None
        part = slot.lease.shard if last and slot.lease else shard
        return self.people.release(KEY, part, named, author=PEOPLE, force=False)

    def _prune(self, _: Slot, __: None, *, older: float) -> Any:
        for slot in self.slots:
            if not slot.live:  # of what retention has forgotten nobody calls any more
                slot.firing = slot.lease = slot.awaited = None
        self._other = None
        return self.people.prune(Retention(executions=older, skips=older))

    # What is compared

    def recorded(self) -> dict[str, Any]:
        """Return everything that people are shown, as all stores must show it."""
        query = HistoryQuery(limit=None)
        traced = list(self.people.traced(query))
        tokens = sorted({each.execution.fencing_token or 0 for each in traced})
        rows = []
        for each in traced:
            row = self._named(each.execution)
            row["fencing_token"] = tokens.index(each.execution.fencing_token or 0)
            row["output"] = self.people.output(each.execution.execution_id)
            row["instant"], row["lost_at"] = each.instant, _moment(each.lost_at)
            rows.append(row)
        leases = [self._named(each) for each in self.people.leases() if each.execution_id]
        for lease in leases:
            for name in ("state", "client_address", "asked_at", "fencing_token"):
                del lease[name]
        dead = self.people.history(HistoryQuery(limit=None, exhausted=True))
        parts = {(each.execution.key, each.execution.shard) for each in traced}
        skips = [self._named(each) for each in self.people.skips(query)]
        return {
            "executions": rows,
            "dead letters": [self._id(each.execution_id) for each in dead],
            "skips": sorted(skips, key=lambda row: [str(row[name]) for name in _SKIP_KEY]),
            "leases": leases,
            "pauses": [self._named(each) for each in self.people.pauses()],
            # A part of which nothing was ever recorded may be known or not.
            "keys": [each for each in self.people.job_keys() if each[:2] in parts],
            "fence is the last token": (KEY, 0) in parts and self.kind.fence(KEY) == tokens[-1],
        }

    def _id(self, execution_id: int | None) -> str | None:
        if not execution_id:
            return None
        return f"#{self._ids.setdefault(execution_id, len(self._ids) + 1)}"

    def _shown(self, answer: Any) -> Any:
        if hasattr(answer, "_asdict"):
            return {"": type(answer).__name__, **self._named(answer)}
        if isinstance(answer, tuple):
            return tuple(map(self._shown, answer))
        return answer

    def _named(self, row: Any) -> dict[str, Any]:
        """Return the fields of a value, ids as they came up and times as moments."""
        shown = {}
        for name, value in row._asdict().items():
            if name == "execution_id":
                shown[name] = self._id(value)
            elif name in _OPAQUE:
                continue
            elif isinstance(value, float) and name not in ("ttl", "duration", "grace"):
                shown[name] = _moment(value)
            else:
                shown[name] = self._shown(value)
        if isinstance(row, AskAgain):
            shown["watched"] = row.watched is not None
        return shown


_OPAQUE = ("token", "trusted_until", "watched", "heartbeat", "backend_pid", "backend_start")
_SKIP_KEY = ("tick", "shard", "host", "reason")


def _moment(value: float | None) -> Moment | None:
    return None if value is None else Moment(value)


def _told(how: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that a step tells by the same names."""
    told = {name: how[name] for name in ("note", "late") if how.get(name)}
    if how.get("output"):
        told |= {"output": how["output"], "output_cut": 3}
    return told


def _ended(outcome: str) -> dict[str, Any]:
    if outcome == "running":
        return {"duration": None, "finished_at": None}
    lost_reason = "not-renewed" if outcome == "lost" else None
    return {"duration": 2.0, "finished_at": clock.wall(), "lost_reason": lost_reason}
