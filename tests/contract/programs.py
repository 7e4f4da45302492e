"""Random programs over a store: what three hosts and the people do, one step after the other.

A step names an operation, its host and its options; a host that runs a job leaves a claim to the next one. `Program`
gives every store the same firings.

Some things are left out, because the contract lets stores differ there:
- a store that loses data, and a store whose clock differs from the host's;
- a session lock that is held or freed apart from its lease (`stale`, and `orphaned` within two heartbeats);
- `listen`, `evict` and `watch_fd`;
- calls for an execution that retention has removed;
- which of several items that are due is drawn first, and what waits, for a draw that wants nothing.
"""

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from hosts import KEY, Host, minute
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from oncecron.core.model import Firing
from oncecron.core.tick import NO_TICK, named_tick

HOSTS = ("a", "bb", "ccc")
PEOPLE = "root@desk"
SILENCE = 25.0
"""Seconds: more than two heartbeats, less than half a lease."""
SHORT_GAP = 40.0
"""Seconds: one silence is shorter, two are longer, by more than a program takes on a busy machine."""
TICKS = {
    "m1": minute(41),
    "m2": minute(42),
    "m3": minute(43),
    "none": NO_TICK,
    "n1": named_tick("n1"),
    "m1 by name": named_tick(minute(41).text or ""),
    "ahead": named_tick("2999-01-01T00:00Z"),
}


class Step(NamedTuple):
    """One step of a program."""

    what: str
    host: int
    how: dict[str, Any]

    def __str__(self) -> str:
        how = ", ".join(
            name if value is True else f"{name}={value}"
            for name, value in self.how.items()
            if value is not None and value is not False
        )
        return f"{(*HOSTS, 'holder')[self.host]}: {self.what}{f' ({how})' if how else ''}"


def _mostly(usual: Any, *others: Any, times: int = 5) -> SearchStrategy[Any]:
    return st.sampled_from([usual] * times + list(others))


_NOTE = _mostly(None, "why", "another why", times=3)
_PLACE = _mostly(None, b"41", rb"a\xff\\" + b"\xff\xe9", b"", times=3)
_OUTCOMES = ("succeeded", "failed", "failed", "not-started", "stopped", "timed-out", "lost")
_TICK_NAMES = (*("m1", "m2", "m3", "none", "n1") * 3, "m1 by name", "ahead")
_RESULTS = st.tuples(
    st.integers(0, 4),
    st.sampled_from(("failed", "failed", "lost", "dead", "done")),
    st.sampled_from((0.0, 300.0)),
)
"""Which item of the last batch, its state, and the delay of its retry."""
_STOPPED = {"reason": _mostly(None, "a move", times=1), "seconds": _mostly(None, 40.0, times=1)}
_HOW: dict[str, dict[str, SearchStrategy[Any]]] = {
    "claim": {
        "tick": st.sampled_from(_TICK_NAMES),
        "failover": _mostly(False, True, times=2),
        "retries": _mostly(0, 1, 2, times=2),
        "again": _mostly(False, True),
        "min_gap": _mostly(None, SHORT_GAP, 3600.0),
        "starting_deadline": _mostly(None, 1.0, 1e6),
        "lateness": _mostly(1.0, 45.0, times=2),
        "shard": _mostly(None, 0, 1, times=10),
        "schedule": _mostly(None, "* * * * *"),
        "unheard": _mostly(False, True),
    },
    "ask again": {},
    "renew": {"place": _PLACE},
    "keep": {
        "outcome": st.sampled_from(("failed", "timed-out")),
        "note": _NOTE,
        "place": _PLACE,
    },
    "retry": {"unheard": _mostly(False, True)},
    "finish": {
        "outcome": st.sampled_from(_OUTCOMES),
        "note": _NOTE,
        "output": _mostly(None, "wrote"),
        "request": _mostly(None, "stop", "release"),
        "place": _PLACE,
    },
    "deliver own": {
        "outcome": st.sampled_from((*_OUTCOMES, "running")),
        "note": _NOTE,
        "output": _mostly(None, "wrote"),
        "place": _PLACE,
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
        "reason": st.sampled_from(("broken", "unmet", "held")),
        "detail": _mostly(None, "not found", times=1),
    },
    "pass": {"seconds": _mostly(SILENCE, 100.0, 3000.0, times=2)},
    "pause": {"key": st.sampled_from((KEY, "*")), **_STOPPED},
    "resume": {"key": st.sampled_from((KEY, "*"))},
    "drain": _STOPPED,
    "undrain": {},
    "look back": {"schedule": st.just("* * * * *")},
    "request": {"kind": st.sampled_from(("stop", "release"))},
    "release": {"execution": _mostly("last", "none", times=3), "shard": _mostly(0, 1, times=3)},
    "mark": {"ahead": st.sampled_from((240.0, 1e7))},
    "prune": {"older": st.sampled_from((0.0, 2000.0))},
    "load": {
        "number": _mostly("next", "same", "late", times=8),
        "first": st.sampled_from((1, 1, 4)),
        "count": st.sampled_from((0, 3, 5)),
        "more": _mostly(False, True, times=3),
        "keep": _mostly(None, 1000.0, 5000.0, times=2),
    },
    "draw": {
        "number": _mostly("next", "same", "early", times=8),
        "wanted": _mostly(9, 2, 0, times=2),
        "results": st.lists(_RESULTS, max_size=3),
        "redraw_below": _mostly(0, 2, 3, times=2),
    },
    "mend": {
        "states": st.sampled_from((("lost",), ("dead",), ("lost", "dead", "failed"))),
        "item": _mostly(None, "item 2"),
        "to": st.sampled_from(("queued", "done")),
    },
}
_OFTEN = {"claim": 40, "finish": 15, "ask again": 9, "keep": 9, "retry": 9, "renew": 6, "pass": 9}
_OFTEN |= {"deliver own": 4, "deliver other": 4, "request": 3, "release": 3, "resume": 2}
_OFTEN |= {"draw": 6, "load": 3, "mend": 2, "look back": 4}
_OFHOLDERS = (
    *("load", "draw", "mend", "renew", "keep", "retry", "finish"),
    "deliver own",
    "request",
    "release",
)
HOLDER = len(HOSTS)
"""Stands for the first host that believes that it has a lease, if there is one."""
_WHAT = [what for what in _HOW for _ in range(_OFTEN.get(what, 1))]


@st.composite
def _steps(draw: Callable[[SearchStrategy[Any]], Any]) -> Step:
    what = draw(st.sampled_from(_WHAT))
    host = draw(_mostly(HOLDER, 0, 1, 2, times=6 if what in _OFHOLDERS else 0))
    return Step(what, host, draw(st.fixed_dictionaries(_HOW[what])))


@st.composite
def _step(
    draw: Callable[[SearchStrategy[Any]], Any], /, what: str, host: int = HOLDER, **fixed: Any
) -> Step:
    return Step(what, host, {**draw(st.fixed_dictionaries(_HOW[what])), **fixed})


def _in_turn(*steps: SearchStrategy[Step]) -> SearchStrategy[list[Step]]:
    return st.tuples(*steps).map(list)


_ONE_TICK = st.sampled_from(("m1", "m2", "n1", "none"))
_PLAIN: dict[str, Any] = {"again": False, "shard": None, "unheard": False, "min_gap": None}
_PLAIN |= {"starting_deadline": None}


def _joined(rounds: SearchStrategy[list[list[Step]]]) -> SearchStrategy[list[Step]]:
    return rounds.map(lambda each: [step for steps in each for step in steps])


def _dying_hosts(same: dict[str, Any]) -> SearchStrategy[list[Step]]:
    """Let hosts die one after the other, and the next ones take over as often as they may."""
    dies = _in_turn(_step("pass", seconds=100.0))
    fails = _in_turn(_step("keep"), _step("pass", seconds=100.0))
    retries = _in_turn(_step("keep"), _step("retry"), _step("pass", seconds=100.0))
    claims = _in_turn(_step("claim", 0, failover=True, **_PLAIN, **same))
    one = st.tuples(claims, st.one_of(dies, fails, retries)).map(lambda two: two[0] + two[1])
    return _joined(st.lists(one, min_size=2, max_size=4))


def _attempts_of_a_tick(same: dict[str, Any]) -> SearchStrategy[list[Step]]:
    """Give a tick several attempts, forced or not, of which some did not start."""
    one = _in_turn(
        _step("claim", 0, **_PLAIN | {"again": True} | same),
        st.one_of(_step("finish"), _step("finish", outcome="not-started"), _step("deliver own")),
    )
    last = _in_turn(_step("claim", 0, **_PLAIN | same))
    return st.tuples(_joined(st.lists(one, min_size=1, max_size=3)), last).map(
        lambda two: two[0] + two[1]
    )


def _pauses(keys: list[str]) -> SearchStrategy[list[Step]]:
    """Pause a key and all keys, in any order, while a job goes on."""
    return _in_turn(
        _step("claim", 0),
        *(_step("pause", key=key) for key in keys),
        _step("keep"),
        _step("claim", 1),
        _step("retry"),
        _step("resume", key=keys[0]),
        _step("claim", 1),
        _step("resume", key=keys[1]),
    )


def _held_back(tick: str) -> SearchStrategy[list[Step]]:
    """Look back on runs, and on what people held back: pauses and drains that were ended, replaced, or not."""
    stops = st.one_of(_step("pause"), _step("drain", 0), _step("resume"), _step("undrain", 0))
    return _in_turn(
        _step("claim", 0, **_PLAIN | {"tick": tick, "schedule": "* * * * *"}),
        _step("finish"),
        *[stops] * 3,
        _step("claim", 0, **_PLAIN),
        _step("pass", seconds=100.0),
        *[stops] * 3,
        _step("look back"),
        _step("prune"),
        _step("look back"),
    )


def _notes(note: str) -> SearchStrategy[list[Step]]:
    said = st.one_of(_step("finish", note=note), _step("deliver own", note=note))
    return _in_turn(
        _step("claim", 0, **_PLAIN),
        _step("keep", note=note),
        st.one_of(_step("retry"), _step("finish", note=note), _step("pass")),
        said,
        said,
    )


def _standby(tick: str) -> SearchStrategy[list[Step]]:
    return _in_turn(
        _step("claim", 0, **_PLAIN | {"tick": tick}),
        _step("claim", 1, **_PLAIN | {"tick": tick, "failover": True}),
        st.one_of(_step("finish"), _step("pass", seconds=100.0)),
        _step("claim", 2, **_PLAIN | {"tick": tick}),
        st.one_of(_step("finish"), _step("finish", outcome="not-started"), _step("keep")),
        _step("ask again", 1),
        _step("claim", 2, tick=tick),
    )


def _standby_without_a_tick(ticks: tuple[str, str, str]) -> SearchStrategy[list[Step]]:
    before, awaited, between = ticks
    return _in_turn(
        _step("claim", 0, **_PLAIN | {"tick": before}),
        _step("finish", outcome="succeeded"),
        _step("claim", 0, **_PLAIN | {"tick": awaited}),
        _step("claim", 1, **_PLAIN | {"tick": "none", "failover": True}),
        st.one_of(_step("finish", outcome="not-started"), _step("pass", seconds=100.0)),
        _step("claim", 2, **_PLAIN | {"tick": between}),
        _step("finish", outcome="succeeded"),
        _step("ask again", 1),
    )


def _another_attempt(tick: str) -> SearchStrategy[list[Step]]:
    """Deliver another attempt of a tick that runs, or has run; meanwhile somebody requests its end."""
    told = {"tick": tick, "shard": None}
    return _in_turn(
        _step("claim", 0, **_PLAIN | told | {"failover": False}),
        _step("request"),
        st.one_of(_step("keep"), _step("finish")),
        _step("deliver other", 1, **told, twice=False),
        _step("retry", unheard=False),
        _step("renew"),
        _step("claim", 1, **_PLAIN | told),
        _step("finish"),
    )


def _forgotten_attempt(tick: str) -> SearchStrategy[list[Step]]:
    """Let retention remove the first attempt of a tick, and not the last, which did not start."""
    told = {"tick": tick}
    return _in_turn(
        _step("claim", 0, **_PLAIN | told),
        _step("finish", outcome="failed"),
        _step("pass", seconds=3000.0),
        _step("claim", 0, **_PLAIN | told | {"again": True}),
        _step("finish", outcome="not-started"),
        _step("prune", older=2000.0),
        _step("claim", 1, **_PLAIN | told),
    )


def _list_of_a_tick(tick: str) -> SearchStrategy[list[Step]]:
    """Load a list and draw from it in two slots, of which one dies; then people mend it, and others go on."""
    slot = {**_PLAIN, "tick": tick, "failover": False}
    draws = [_step("draw", number="next") for _ in range(6)]
    return _in_turn(
        _step("claim", 0, **slot | {"shard": 0}),
        _step("load", 0, number="next", more=False, first=1),
        _step("draw", 0, number="next", redraw_below=0),
        _step("claim", 1, **slot | {"shard": 1}),
        _step("draw", 1, number="next", wanted=2),
        draws[0],
        st.one_of(_step("pass", seconds=100.0), _step("finish"), _step("load", number="next")),
        _step("mend"),
        _step("claim", 2, **slot | {"again": True, "shard": 0}),
        *draws[1:4],
        st.one_of(_step("mend"), _step("pause"), _step("drain"), _step("load", number="next")),
        *draws[4:],
    )


def _list_that_is_forgotten(tick: str) -> SearchStrategy[list[Step]]:
    slot = {**_PLAIN, "tick": tick}
    return _in_turn(
        _step("claim", 0, **slot),
        _step("load", 0, number="next", more=False),
        _step("draw", 0, number="next"),
        _step("draw", 0, number="next"),
        _step("finish", 0),
        _step("pass", seconds=3000.0),
        _step("prune", older=2000.0),
        _step("claim", 0, **slot | {"again": True}),
        _step("load", 0, number="next", more=False),
        _step("draw", 0, number="next"),
    )


def _short_gaps(gap: float) -> SearchStrategy[list[Step]]:
    ended = st.one_of(_step("finish"), _step("finish", outcome="not-started"))
    late = {"tick": "none", "min_gap": gap}
    return _in_turn(
        _step("claim", 0, **_PLAIN | {"tick": "none"}),
        st.one_of(ended, _step("pass")),
        st.one_of(ended, _step("claim", 0, **_PLAIN | late), _step("deliver other", tick="none")),
        st.one_of(ended, _step("deliver its end")),
        _step("claim", 0, **_PLAIN | late),
    )


_STORIES: tuple[SearchStrategy[list[Step]], ...] = (
    st.fixed_dictionaries({"tick": _ONE_TICK, "retries": st.sampled_from((0, 1, 2))}).flatmap(
        _dying_hosts
    ),
    st.fixed_dictionaries({"tick": _ONE_TICK}).flatmap(_attempts_of_a_tick),
    st.permutations((KEY, "*")).flatmap(_pauses),
    *[st.sampled_from(("m1", "m2", "n1", "none")).flatmap(_held_back)] * 2,
    st.sampled_from(("why", "another why")).flatmap(_notes),
    _ONE_TICK.flatmap(_standby),
    *[
        st.sampled_from(
            (("none", "none", "none"), ("none", "none", "m1"), ("none", "m1", "none"))
        ).flatmap(_standby_without_a_tick)
    ]
    * 2,
    _ONE_TICK.flatmap(_another_attempt),
    st.sampled_from(("m1", "m2", "n1")).flatmap(_forgotten_attempt),
    *[st.sampled_from(("m1", "n1")).flatmap(_list_of_a_tick)] * 3,
    st.sampled_from(("m1", "m2", "n1")).flatmap(_list_that_is_forgotten),
    st.sampled_from((SHORT_GAP, 3600.0)).flatmap(_short_gaps),
    _in_turn(_step("deliver other", 0), _step("deliver its end"), _step("claim", 1)),
    _in_turn(_step("deliver other", 0, tick="ahead"), _step("claim", 1)),
    _in_turn(_step("deliver skip", 0), _step("deliver skip", 0, twice=True)),
    _in_turn(
        _step("claim", 0),
        _step("mark"),
        st.one_of(_step("claim", 1), _step("finish"), _step("deliver other", 1)),
        _step("claim", 1, shard=None),
        _step("claim", 2, shard=None),
    ),
)
"""What random steps alone seldom come to."""

_BLOCK = st.one_of(st.lists(_steps(), max_size=8), *_STORIES)
PROGRAMS: SearchStrategy[list[Step]] = st.tuples(*[_BLOCK] * 5).map(
    lambda blocks: [step for block in blocks for step in block]
)
"""About 30 steps, of which any may go when a program is made shorter."""


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
        return self._hosts[step.host % len(HOSTS)].firing(tick, **parts)
