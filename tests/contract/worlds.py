"""One store under a random program: each step is done on it, and answered in a form that all stores share.

Ids stand in the order in which they came up, tokens by their rank, times within seconds; what only one kind of store
knows is left out.
"""

import re
from typing import Any

from contract_stores import StoreKind
from hosts import KEY, Host, ending, execution_record, minute, skip_record
from item_hosts import deadline
from programs import HOLDER, HOSTS, PEOPLE, Step
from servers import eventually

from oncecron.core import clock
from oncecron.core.errors import OncecronError, StoreError
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.making_up import HELD_BACK
from oncecron.core.model import (
    AskAgain,
    Firing,
    Lease,
    Output,
    Refusal,
    Request,
    Retention,
    place_text,
)
from oncecron.core.tick import instant_of
from oncecron_each.item_model import Chunk, Draw, Item, ItemList, ItemResult
from oncecron_each.reports import ItemQuery, item_lists, items, mend_items

_NEARLY = 15.0


class Moment(float):
    """A time; two are equal within seconds, since stores are asked one after the other."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < _NEARLY

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]


class Slot:
    """One process on a host: its last firing, and what it was answered."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.firing: Firing | None = None
        self.lease: Lease | None = None
        self.live = False
        """Whether it believes that it has a lease."""
        self.kept = False
        self.unanswered = False
        """Whether the answer to its last retry was lost."""
        self.cut = False
        """Whether its session ended with its lease."""
        self.awaited: int | None = None
        self.begin_items()

    def begin_items(self) -> None:
        """Begin as an execution that has loaded and drawn nothing."""
        self.loading = -1
        self.drawing = 0
        self.drawn: list[int] = []
        """The positions of the last batch."""

    def lost(self) -> None:
        """Go the way of a firing whose lease is over."""
        self.live = self.kept = self.unanswered = False
        self.host.store.close()


class World:
    """One store, and the hosts that ask it."""

    def __init__(self, kind: StoreKind) -> None:
        self.kind = kind
        self.stores = [kind.firing() for _ in HOSTS]
        self.items = [kind.items() for _ in HOSTS]
        self.spool = Host(kind.firing(), "spool")
        self.people = kind.people()
        self.begin()

    def begin(self) -> None:
        for store in (*self.stores, *self.items):
            store.close()
        self.kind.empty()
        hosts = zip(self.stores, HOSTS, strict=True)
        self.slots = [Slot(Host(store, name)) for store, name in hosts]
        self._ids: dict[int, int] = {}
        self._other: dict[str, Any] | None = None
        self._tokens = [0]
        self._passed = 0.0

    def do(self, step: Step, firing: Firing | None) -> Any:
        method = getattr(self, "_" + step.what.replace(" ", "_"))
        try:
            return self._shown(method(self._slot(step), firing, **step.how))
        except OncecronError as error:
            return (type(error).__name__, re.sub(r"\d+", "N", str(error)))

    def _slot(self, step: Step) -> Slot:
        """Return who does the step: a claim is the next idle host's."""
        host = step.host % len(HOSTS)
        wanted = step.what != "claim"
        if wanted and step.host != HOLDER:
            return self.slots[host]
        others = [slot for slot in self.slots[host:] + self.slots[:host] if slot.live == wanted]
        return others[0] if others else self.slots[host]

    # What a firing does

    def _claim(self, slot: Slot, firing: Firing, *, unheard: bool, **_: Any) -> Any:
        if slot.live:
            return "every host runs a job"
        firing = firing._replace(holder=slot.host.holder)
        slot.firing, slot.lease, slot.awaited = firing, None, None
        slot.kept = slot.unanswered = slot.cut = False
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
            if slot.lease is None or slot.lease.execution_id != answer.execution_id:
                slot.begin_items()
            slot.lease, slot.live, slot.cut, slot.unanswered = answer, True, False, False
            self._tokens.append(answer.token)
        elif slot.live:
            slot.lost()
        if isinstance(answer, Refusal) and answer.blocked_by:
            slot.awaited = answer.blocked_by.execution_id
        return answer

    def _renew(self, slot: Slot, _: None, place: bytes | None = None) -> Any:
        if slot.lease is None or slot.unanswered:
            return "no lease"
        renewed = slot.host.renew(slot.lease, place)
        if renewed:
            slot.lease, slot.cut = renewed, False
        else:
            slot.lost()
        return renewed

    def _keep(self, slot: Slot, _: None, *, outcome: str, **how: Any) -> Any:
        if slot.unanswered:
            return "its retry has no answer yet"
        if slot.cut and slot.live:
            self._renew(slot, None)  # a new session first takes its lock again
        if slot.lease is None:
            return "no lease"
        slot.kept = slot.host.keep(slot.lease, outcome, **how)
        if not slot.kept:
            slot.lost()
        return slot.kept

    def _retry(self, slot: Slot, _: None, *, unheard: bool) -> Any:
        if slot.lease is None or not slot.kept:
            return "nothing kept"
        answer = slot.host.retry(slot.lease)
        slot.unanswered = unheard and isinstance(answer, Lease)
        if slot.unanswered:
            return "unheard"
        if isinstance(answer, Lease):
            slot.begin_items()
            slot.lease, slot.kept, slot.cut = answer, False, False
            self._tokens.append(answer.token)
        elif answer is None:
            slot.lost()
        return answer

    def _finish(self, slot: Slot, _: None, **how: Any) -> Any:
        if slot.lease is None:
            return "no lease"
        output = Output(how["output"], 3) if how["output"] else None
        told = ending(how["outcome"], how["note"], output)._replace(place=how["place"])
        if how["request"]:
            told = told._replace(request=Request(how["request"], PEOPLE, 15, None))
        everything = Retention(executions=1e9, skips=1e9)
        store, deadline = slot.host.store, slot.host.deadline()
        in_time = store.finish(slot.lease, told, everything, deadline=deadline)
        slot.lost()
        return in_time

    # What the runner of `each` does

    def _load(self, slot: Slot, _: None, *, number: str, more: bool, **how: Any) -> Any:
        if slot.lease is None or slot.lease.tick is None:
            return "no lease"
        last = slot.loading
        named = [f"item {place}" for place in range(how["first"], how["first"] + how["count"])]
        chunk = Chunk(
            {"next": last + 1, "same": max(last, 0), "late": last + 2}[number],
            [Item(name, name if "2" in name else f"{name} of {KEY}") for name in named],
            is_last=not more,
            keep=how["keep"],
        )
        store = self.items[self.slots.index(slot)]
        try:
            loaded = store.load(
                slot.lease, ItemList(KEY, slot.lease.tick), chunk, deadline=deadline(store)
            )
        except StoreError:
            return "refused"
        if loaded and number == "next":
            slot.loading = last + 1
        return loaded

    def _draw(self, slot: Slot, _: None, *, number: str, **how: Any) -> Any:
        if slot.lease is None or slot.lease.tick is None:
            return "no lease"  # `each` has a tick always
        results = {
            slot.drawn[place]: ItemResult(
                slot.drawn[place], state, delay if state == "failed" else None, f"it {state}"
            )
            for place, state, delay in how["results"]
            if place < len(slot.drawn)
        }
        draw = Draw(
            slot.drawing + {"next": 1, "same": 0, "early": 2}[number],
            list(results.values()),
            9 if how["wanted"] and self._has_marks(slot.lease) else how["wanted"],
            slots=2,
            redraw_below=how["redraw_below"],
        )
        store = self.items[self.slots.index(slot)]
        drawn = store.draw(slot.lease, draw, deadline=deadline(store))
        if drawn and number == "next":
            slot.drawing += bool(drawn.items)
            slot.drawn = [item.position for item in drawn.items]
        return drawn if draw.wanted or drawn is None else drawn.stopped

    def _has_marks(self, lease: Lease) -> bool:
        """Return whether an item was drawn before: of several that are due, any may be drawn first."""
        rows = items(self.people, ItemQuery(ItemList(KEY, lease.tick or "")))
        return any(row.attempts and row.state != "done" for row in rows)

    def _mend(self, slot: Slot, _: None, *, states: Any, item: str | None, to: Any) -> Any:
        if slot.firing is None or slot.firing.tick.text is None:
            return "no tick"
        identities = None if item is None else [item]
        query = ItemQuery(ItemList(KEY, slot.firing.tick.text), states, identities)
        return mend_items(self.people, query, to, author=PEOPLE)

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

    def _look_back(self, slot: Slot, _: Firing | None, *, schedule: str) -> Any:
        """Return what is told of the last hour: some stores have the earlier pauses of a name in one row.

        They are asked for so much more as has passed: what has aged may have been skipped before its tick was due, and
        one store looks at the time of a skip, another at its tick.
        """
        firing = slot.host.firing(minute(59), schedule=schedule)
        since_then = minute(0).instant or 0.0
        asked = since_then - self._passed
        rows = slot.host.store.look_back(firing, asked, deadline=slot.host.deadline())
        told = []
        for kind, name, detail, since, until in rows:
            past = detail if kind in ("pause", "drain") else None
            spans = [tuple(map(float, each.split("-"))) for each in (past or "").split()]
            if since is not None and (until is None or float(until) > 0):
                spans.append((float(since), float(until or 0.0)))
            if kind in HELD_BACK and (instant_of(name) or 0.0) <= since_then:
                continue  # of before, or of no tick
            if kind in ("pause", "drain"):
                told += [(kind, name, None, span) for span in spans]
            else:
                told.append((kind, name, detail, *spans))
        told.sort(key=lambda row: (str(row[:3]), row[3:]))
        return [(*row[:3], *map(Moment, row[3] if len(row) > 3 else ())) for row in told]

    def _pass(self, _: Slot, __: None, *, seconds: float) -> Any:
        """Let time pass; whose lease has ended has lost its session, which may be the reason."""
        self._passed += seconds
        self.kind.age(seconds)
        now = clock.wall()
        for lease in self.people.leases():
            if lease.host in HOSTS and (lease.expires_at or now) <= now:
                slot = self.slots[HOSTS.index(lease.host)]
                slot.cut = True
                slot.host.store.close()
                eventually(lambda pid=lease.backend_pid: self.kind.without_lock(pid))

    # What people do

    def _pause(self, _: Slot, __: None, **how: Any) -> Any:
        return self.people.pause(author=PEOPLE, **how)

    def _resume(self, _: Slot, __: None, *, key: str) -> Any:
        return self.people.resume(key)

    def _drain(self, slot: Slot, _: None, **how: Any) -> Any:
        return self.people.drain(slot.host.holder.host, author=PEOPLE, **how)

    def _undrain(self, slot: Slot, _: None) -> Any:
        return self.people.undrain(slot.host.holder.host)

    def _request(self, slot: Slot, _: None, *, kind: Any) -> Any:
        if slot.lease is None:
            return "no lease"
        asked = Request(kind, PEOPLE, 15, 5.0)
        return self.people.request(KEY, slot.lease.shard, slot.lease.execution_id, asked)

    def _release(self, slot: Slot, _: None, *, execution: str, shard: int) -> Any:
        last = slot.lease if execution == "last" else None
        shard, named = (last.shard, last.execution_id) if last else (shard, None)
        return self.people.release(KEY, shard, named, author=PEOPLE, force=False)

    def _mark(self, _: Slot, __: None, *, ahead: float) -> Any:
        """Let a clock that was ahead have written the marks of the key, if its first shard has an execution.

        Without one, its row is there or not: PostgreSQL makes it with the row of any other shard.
        """
        wrong = (minute(59).instant or 0.0) + ahead
        if any(each.execution.shard == 0 for each in self.people.traced(HistoryQuery(limit=None))):
            self.kind.mark(KEY, wrong, wrong)

    def _prune(self, _: Slot, __: None, *, older: float) -> Any:
        removed = self.people.prune(Retention(executions=older, skips=older))
        for slot in self.slots:  # of what retention has forgotten nobody calls any more
            if slot.lease and not self.people.execution(slot.lease.execution_id):
                slot.lost()
            if not slot.live:
                slot.firing = slot.lease = slot.awaited = None
        self._other = None
        return removed

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
        lists = sorted(item_lists(self.people), key=lambda each: each.items_of)
        parts = {(each.execution.key, each.execution.shard) for each in traced}
        skips = [self._named(each) for each in self.people.skips(query)]
        hosts = [self._named(each) for each in self.people.key_hosts()]
        for host in hosts:
            host["ticks"] = [(tick, Moment(at)) for tick, at in host["ticks"]]
        return {
            "executions": rows,
            "dead letters": [self._id(each.execution_id) for each in dead],
            "skips": sorted(skips, key=lambda row: [str(row[name]) for name in _SKIP_KEY]),
            "leases": leases,
            "hosts": hosts,
            "lists": [self._named(each) for each in lists],
            "items": [
                self._named(row)
                for each in lists
                for row in items(self.people, ItemQuery(each.items_of))
            ],
            "pauses": [self._named(each) for each in self.people.pauses()],
            # A part of which nothing was ever recorded may be known or not.
            "keys": [self._named(each) for each in self.people.job_keys() if each[:2] in parts],
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
    told = {name: how[name] for name in ("note", "late") if how.get(name)}
    if how.get("output"):
        told |= {"output": how["output"], "output_cut": 3}
    if how.get("place") is not None:
        told["place"] = place_text(how["place"])
    return told


def _ended(outcome: str) -> dict[str, Any]:
    if outcome == "running":
        return {"duration": None, "finished_at": None}
    lost_reason = "not-renewed" if outcome == "lost" else None
    return {"duration": 2.0, "finished_at": clock.wall(), "lost_reason": lost_reason}
