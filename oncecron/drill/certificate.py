"""What a drill says in the end: one certificate, as text of 80 columns or as JSON."""

import dataclasses
import json
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class FaultCount:
    """How often one kind of fault was begun, and how often it reached something."""

    began: int
    hit: int


@dataclasses.dataclass(frozen=True)
class Finding:
    """One broken promise, or one documented hole."""

    rule: str
    sentence: str
    hole: bool
    """A hole that the documentation names: it alone is no violation, unless the store lost what it had confirmed."""
    timeline: str
    """The shortest history that shows it, as lines of text up to 160 columns wide."""


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Times are UTC, in ISO 8601; durations are seconds."""

    store: str
    """The address without a password."""
    kind: str
    """postgres, redis or sqlite."""
    store_version: str
    topology: list[str]
    """A sentence for each server or role that was seen."""
    oncecron: str
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
    takeovers: int
    longest_without_runner: float | None
    """The longest time from a lost run of a key to the next start of that key; None if no run was lost."""
    latency: dict[str, float]
    """`p50`, `p95` and `p99`, from a firing to the first line of its job; empty if nothing was started."""
    events: list[tuple[str, str]]
    """What was seen at the store: when, and what."""
    violations: list[Finding]
    """Documented holes too."""
    not_tried: list[str]
    verdict: Literal["clean", "violated", "not judged"]
    why: str
    """One sentence."""


def as_json(certificate: Certificate) -> str:
    """Return it as one JSON object, with the names of the fields."""
    values: dict[str, Any] = dataclasses.asdict(certificate)
    return json.dumps(values, indent=2, ensure_ascii=False)
