"""What a drill says in the end: one certificate, and as text of 80 columns."""

import dataclasses
import textwrap
from typing import Literal

from oncecron_drill.history import Control
from oncecron_drill.stores.another import ANOTHER

Judgement = Literal["clean", "violated", "nothing found", "not judged"]
_TITLES: dict[Judgement, str] = {"nothing found": "NOTHING FOUND (too few faults)"}


@dataclasses.dataclass(frozen=True)
class FaultCount:
    """How often one kind of fault was begun, and how often it reached something."""

    began: int
    hit: int


@dataclasses.dataclass(frozen=True)
class ClassCount(FaultCount):
    """The same of a class of faults."""

    below: float | None
    """The share of such faults that break a promise is smaller, at 95 %, where none did; None: none has hit."""


@dataclasses.dataclass(frozen=True)
class Outside:
    """How often a class of faults that the promise leaves out was tried, and after how many of these jobs met."""

    tried: int | None
    """None: it is not one kind of fault that could be counted."""
    overlapped: int


@dataclasses.dataclass(frozen=True)
class Finding:
    """One broken promise, or one documented hole."""

    rule: str
    sentence: str
    hole: bool
    """The documentation names it. Among the violations: what a store did that lost what it had confirmed."""
    timeline: str
    """The shortest history that shows it, as lines of text up to 160 columns wide."""


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Times are UTC, in ISO 8601; durations are seconds."""

    store: str
    """The address without a password, or the command of another wrapper."""
    kind: str
    """postgres, redis or sqlite; another, where another wrapper fired."""
    store_version: str
    topology: list[str]
    """A sentence for each server or role that was seen."""
    oncecron: str
    """The version that was drilled."""
    judged_by: str
    """The version whose rules judge it."""
    python: str
    began_at: str
    seed: int
    minutes: float
    """For how long the faults struck."""
    hosts: int
    keys: int
    firings: int
    starts: int
    skips: dict[str, int]
    """By reason: done, held, ..."""
    executions: dict[str, int]
    """By outcome: succeeded, failed, lost, ..."""
    faults: dict[str, FaultCount]
    """By kind."""
    classes: dict[str, ClassCount]
    """Those that the promise covers."""
    below: float | None
    """As of a class, of all of these together."""
    outside: dict[str, Outside]
    """The classes that the promise leaves out, as far as they were to be tried. No verdict counts them."""
    holes: list[Finding]
    """What was found of them."""
    control: Control
    takeovers: int
    longest_without_runner: float | None
    """The longest time from a lost run of a key to the next start of that key; None if no run was lost."""
    latency: dict[str, float]
    """`p50`, `p95` and `p99`, from a firing to the first line of its job; empty if nothing was started."""
    events: list[tuple[str, str]]
    """What was seen at the store: when, and what."""
    violations: list[Finding]
    not_tried: list[str]
    verdict: Judgement
    why: str
    """One sentence."""


WIDTH = 80


def as_text(certificate: Certificate) -> str:
    """Return it in about 25 lines of at most 80 columns; below them the history that shows the first violation."""
    head = certificate
    lines = [
        f"oncecron drill: {_TITLES.get(head.verdict, head.verdict.upper())}",
        *_wrapped("", head.why),
        "",
        *_wrapped("control", _control(head.control)),
        *_of_what(head),
        *_wrapped("oncecron", f"{head.oncecron}, Python {head.python}{_judge(head)}"),
        *_wrapped(
            "drill",
            f"{head.began_at}, {head.minutes:g} min, {head.hosts} hosts, {head.keys} keys, seed {head.seed}",
        ),
        *_wrapped("firings", f"{head.firings}, {head.starts} starts"),
        *_log(head),
        *_wrapped("faults", _faults(head.classes)),
        *([] if _is_of_another(head) else _wrapped("takeovers", _takeovers(head))),
        *_wrapped("to the job", _latency(head.latency)),
        *_events(head.events),
        *_findings(head.violations),
        *_wrapped("not tried", "; ".join(head.not_tried)),
        *_outside(head.outside),
    ]
    timelines = [finding.timeline for finding in head.violations if finding.timeline]
    if head.verdict == "violated" and timelines:
        lines += ["", timelines[0]]
    return "\n".join(lines)


_LABEL = 14
_MOST_EVENTS = 5


def _judge(certificate: Certificate) -> str:
    other = certificate.judged_by != certificate.oncecron
    return f"; judged by the rules of {certificate.judged_by}" if other else ""


def _wrapped(label: str, text: str) -> list[str]:
    indent = " " * _LABEL
    return textwrap.wrap(
        text or "none", WIDTH, initial_indent=label.ljust(_LABEL), subsequent_indent=indent
    )


def _listed(label: str, texts: list[str]) -> list[str]:
    first, *others = texts
    return [*_wrapped(label, first), *(line for text in others for line in _wrapped("", text))]


def _is_of_another(certificate: Certificate) -> bool:
    return certificate.kind == ANOTHER


def _of_what(certificate: Certificate) -> list[str]:
    if _is_of_another(certificate):
        return _listed("wrapper", [certificate.store, *certificate.topology])
    version = f"{certificate.store}, {certificate.store_version}"
    return _listed("store", [version, *certificate.topology])


def _log(certificate: Certificate) -> list[str]:
    """Return the lines of the log, which another wrapper has not."""
    if _is_of_another(certificate):
        return []
    executions = _wrapped("executions", _counts(certificate.executions))
    return [*executions, *_wrapped("skips", _counts(certificate.skips))]


def _counts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in numbers.items())


def _faults(classes: dict[str, ClassCount]) -> str:
    hit = sum(count.hit for count in classes.values())
    return f"{hit} hit: " + ", ".join(f"{name} {count.hit}" for name, count in classes.items())


def _control(control: Control) -> str:
    if not control.together:
        return f"a plain lock started {control.starts} jobs in {control.faults} faults: it was not caught"
    met = (
        f"{control.together} jobs beside each other" if control.together > 1 else "two jobs at once"
    )
    return f"a plain lock ran {met} in {control.faults} faults"


def _outside(classes: dict[str, Outside]) -> list[str]:
    if not classes:
        return []
    found = [
        f"{name}: {'' if count.tried is None else f'tried {count.tried}, '}overlapped {count.overlapped}"
        for name, count in classes.items()
    ]
    return [
        "",
        "outside the promise, and in no verdict:",
        *(line for text in found for line in _wrapped("", text)),
    ]


def _takeovers(certificate: Certificate) -> str:
    longest = certificate.longest_without_runner
    if longest is None:
        return f"{certificate.takeovers}; no run was lost"
    return f"{certificate.takeovers}; after a lost run nobody ran for {longest:.1f} s at most"


def _latency(latency: dict[str, float]) -> str:
    if not latency:
        return "no job was started"
    return ", ".join(f"{value * 1000:.0f} ms ({name})" for name, value in latency.items())


def _events(events: list[tuple[str, str]]) -> list[str]:
    if not events:
        return _wrapped("at the store", "nothing happened")
    shown = [f"{at} {text}" for at, text in events[:_MOST_EVENTS]]
    shown += [f"and {len(events) - _MOST_EVENTS} more"] if len(events) > _MOST_EVENTS else []
    return _listed("at the store", shown)


def _findings(findings: list[Finding]) -> list[str]:
    if not findings:
        return _wrapped("violations", "none")
    alike: dict[str, list[Finding]] = {}
    for finding in findings:
        alike.setdefault(finding.rule, []).append(finding)
    return _listed("violations", [_first_of(group) for group in alike.values()])


def _first_of(alike: list[Finding]) -> str:
    first, *others = alike
    more = f"; and {len(others)} more (--json)" if others else ""
    return f"{first.rule}: {first.sentence}{more}"
