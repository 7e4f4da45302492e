"""Make the certificate of a drill: the verdict of the checker, what the watch saw, and what was not tried."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from oncecron import __version__
from oncecron_drill.certificate import (
    Certificate,
    ClassCount,
    FaultCount,
    Finding,
    Judgement,
)
from oncecron_drill.checker import Violation, check
from oncecron_drill.faults import OUTSIDE
from oncecron_drill.history import History
from oncecron_drill.narration import draw
from oncecron_drill.rules.joined import Joined, alive_until, option, was_lost
from oncecron_drill.store_watch import AWAY, utc
from oncecron_drill.strength import FEWEST, below, by_kind, outside, promised

FEWEST_STARTS = 5
"""With fewer nothing has been shown."""
WORST = ("double", "overlap", "repeated", "beside", "fence", "token", "standby")
"""Rules whose violation hurts most, in this order; what the log does not say right hurts less."""
OF_A_FORGETFUL_STORE = ("double", "unrecorded", "untrue", "repeated")
"""Rules whose documented holes are those of a store that lost what it had confirmed."""
NEVER_TRIED = (
    "a host that is cut off by its network alone (packets lost, swallowed or delayed by the kernel)",
    "a machine without power, and a kernel that stops",
)
NOT_OF_ONCECRON = ("the fencing tokens of a job's own SQL", "a log store beside this one (--log)")
NOT_OF_ANOTHER = (
    "a wrong clock, and a full disk",
    "whatever it writes itself: only what its jobs wrote was judged",
)


def assess(history: History) -> Certificate:
    """Judge a history and return the certificate."""
    joined, verdict, seen = Joined(history), check(history), history.seen
    found = [] if seen.unread else [*verdict.violations, *verdict.holes]
    found += [
        Violation(each.rule, each.sentence, moments=[each.at], hole=True) for each in seen.never
    ]
    findings = ordered([*_findings(history, found)])
    violations = [finding for finding in findings if not finding.hole or _is_loss(finding)]
    faults = by_kind(history)
    classes = promised(history, faults)
    judged, why = _verdict(history, violations, classes)
    return Certificate(
        store=seen.store,
        kind=history.head["store"],
        store_version=seen.version,
        topology=seen.topology,
        oncecron=history.head["oncecron"],
        judged_by=__version__,
        python=history.head["python"],
        began_at=utc(history.head["began_at"]),
        seed=history.head["seed"],
        minutes=history.head["minutes"],
        hosts=len(history.head["hosts"]),
        keys=len(history.head["keys"]) + len(history.head["items"]),
        firings=len(history.firings),
        starts=len(history.starts),
        skips=verdict.counts["skips"],
        executions=verdict.counts["executions"],
        faults=faults,
        classes=classes,
        below=below(sum(count.hit for count in classes.values())),
        outside=outside(history, verdict.holes),
        holes=[finding for finding in findings if finding not in violations],
        control=history.control,
        takeovers=verdict.counts["takeovers"],
        longest_without_runner=max(_gaps(joined), default=None),
        latency=_latency(joined),
        events=seen.events,
        violations=violations,
        not_tried=_not_tried(history, faults),
        verdict=judged,
        why=why,
    )


def _verdict(
    history: History, violations: Sequence[Finding], classes: Mapping[str, ClassCount]
) -> tuple[Judgement, str]:  # fmt: skip
    unread = history.seen.unread
    if violations:
        lost = any(_is_loss(finding) and finding.rule != "clock-step" for finding in violations)
        count = f"{len(violations)} violation{'s' * (len(violations) > 1)}"
        which = f"the first: {violations[0].sentence}"
        return "violated", f"{'the store lost what it had confirmed; ' * lost}{count}; {which}"
    if unread:
        return "not judged", f"the log could not be read in the end: {unread}"
    if not history.control.together:
        said = f"; one said: {history.control.said}" if history.control.said else ""
        return "not judged", f"the control was not caught, so this drill may see nothing{said}"
    if len(history.starts) < FEWEST_STARTS:
        away = any(fault.kind == AWAY for fault in history.faults)
        reason = "the store was away" if away else "hardly a job was started"
        return "not judged", f"{reason}: {len(history.starts)} starts"
    return _nothing_found(classes)


def _nothing_found(classes: Mapping[str, ClassCount]) -> tuple[Judgement, str]:
    hit = sum(count.hit for count in classes.values())
    untried = [name for name, count in classes.items() if not count.hit]
    found = f"0 violations in {hit} faults that hit"
    if hit < FEWEST:
        return "nothing found", f"{found}; at least {FEWEST} must: give it more --minutes"
    if untried:
        return (
            "nothing found",
            f"{found}, none of them: {', '.join(untried)}; give it more --minutes",
        )
    share = f"{100 * (below(hit) or 1):.1f} %"
    return "clean", f"{found}: fewer than {share} of such faults break it, at 95 %"


def _is_loss(finding: Finding) -> bool:
    """Return whether a store did what it must never do: no excuse, also where the documentation names it."""
    return finding.hole and finding.rule in (*OF_A_FORGETFUL_STORE, "lost-write", "clock-step")


# Findings


def _findings(history: History, violations: Sequence[Violation]) -> Iterator[Finding]:
    """Yield violations and holes, of each rule the shortest first, with a timeline for the first of a rule."""
    drawn: set[str] = set()
    for found in sorted(violations, key=_span):
        timeline = "" if found.rule in drawn else draw(history, found)
        drawn.add(found.rule)
        yield Finding(found.rule, found.sentence, found.hole, timeline)


def ordered(findings: Sequence[Finding]) -> list[Finding]:
    """Return first the first of each rule, the worst rule before the others, then the second of each, and so on."""
    numbers: Counter[tuple[str, bool]] = Counter()
    ranked = []
    for finding in findings:
        rank = WORST.index(finding.rule) if finding.rule in WORST else len(WORST)
        is_excused = finding.hole and not _is_loss(finding)
        ranked.append((numbers[finding.rule, finding.hole], is_excused, rank, finding))
        numbers[finding.rule, finding.hole] += 1
    return [finding for *_, finding in sorted(ranked, key=lambda place: place[:3])]


def _span(found: Violation) -> tuple[bool, float]:
    moments = found.moments or [0.0]
    return found.hole, max(moments) - min(moments)


# Counts


def _gaps(joined: Joined) -> Iterator[float]:
    for starts in joined.parts.values():
        for before, after in itertools.pairwise(starts):
            if any(was_lost(row) for row in joined.rows_of(before)[:1]):
                yield max(0.0, after.at - alive_until(before))


def _latency(joined: Joined) -> dict[str, float]:
    """Return how long firings took to the first line of their job: those that had nothing to wait for."""
    times = sorted(
        starts[0].at - firing.at
        for firing in joined.history.firings
        if (starts := joined.starts_of(firing))
        and starts[0].attempt == 1
        and not any(option(firing, name) for name in ("--wait", "--failover"))
    )
    if not times:
        return {}
    return {
        f"p{share}": round(times[min(len(times) - 1, len(times) * share // 100)], 4)
        for share in (50, 95, 99)
    }


def _not_tried(history: History, faults: Mapping[str, FaultCount]) -> list[str]:
    head, unproxied = history.head, history.seen.unproxied
    found = [f"cut and slow connections: {unproxied}"] if unproxied else []
    if head["store"] == "sqlite":
        found.append("a full disk: it would be the store's too")
    if not set(OUTSIDE) & set(head["kinds"].values()):
        found.append("what the promise leaves out (--no-holes)")
    missed = [kind for kind in head["kinds"] if kind not in faults or not faults[kind].hit]
    found += [f"that hit nothing: {', '.join(missed)}"] if missed else []
    promised = head.get("promised")
    if promised is not None and "double" not in promised:
        found.append("a second start of a tick: the wrapper was given no {tick}")
    return [*found, *NEVER_TRIED, *(NOT_OF_ONCECRON if promised is None else NOT_OF_ANOTHER)]
