"""What a certificate says first: the first finding of each rule, the worst rule first, and how many others."""

from __future__ import annotations

import dataclasses

from oncecron_drill.assess import ordered
from oncecron_drill.certificate import (
    Certificate,
    ClassCount,
    FaultCount,
    Finding,
    Outside,
    as_text,
)
from oncecron_drill.history import Control

CLEAN = Certificate(
    store="postgresql://cron@db.example.com/oncecron",
    kind="postgres",
    store_version="PostgreSQL 17.6",
    topology=["db.example.com:5432 takes writes"],
    oncecron="0.1.0",
    judged_by="0.1.0",
    python="3.11.2",
    began_at="2026-11-20T14:02:11Z",
    seed=7,
    minutes=2.0,
    hosts=5,
    keys=8,
    firings=812,
    starts=203,
    skips={"done": 502, "held": 99},
    executions={"succeeded": 190, "lost": 13},
    faults={"kill the guard": FaultCount(79, 78), "stop wrapper and guard": FaultCount(4, 4)},
    classes={"a process killed": ClassCount(79, 78, 0.0377)},
    below=0.0377,
    outside={"both processes stopped together": Outside(4, 3)},
    holes=[],
    control=Control(together=4, faults=22, starts=31, said=""),
    takeovers=6,
    longest_without_runner=7.2,
    latency={"p50": 0.061, "p95": 0.143, "p99": 0.412},
    events=[("2026-11-20T14:03:02Z", "two sessions ended")],
    violations=[],
    not_tried=["a failover of the store"],
    verdict="clean",
    why="No promise was broken.",
)


def found(rule: str, number: int, *, hole: bool = False) -> Finding:
    """Return one."""
    return Finding(rule, f"{rule} {number}", hole, "")


def test_many_of_one_rule_do_not_hide_another() -> None:
    """A store that forgets has dozens of items that are not recorded, and one tick that started twice."""
    many = [found("unexplained", number) for number in range(50)]
    excused = found("overlap", 0, hole=True)
    others = [excused, found("lost-write", 0, hole=True), found("overlap", 0)]
    findings = ordered([*many, *others, *(found("double", n, hole=True) for n in (0, 1))])
    assert [each.sentence for each in findings[:7]] == [
        "double 0", "overlap 0", "unexplained 0", "lost-write 0", "overlap 0", "double 1", "unexplained 1",
    ]  # fmt: skip
    assert findings[4] is excused
    assert findings[7:] == many[2:]


def test_the_text_has_the_first_of_each_rule_and_counts_the_others() -> None:
    """Here the first is a store's that lost what it had confirmed."""
    findings = [found("double", 0, hole=True), *(found("overlap", n) for n in range(3))]
    lines = as_text(dataclasses.replace(CLEAN, violations=findings)).splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("violations"))
    assert [line[14:] for line in lines[begin : begin + 2]] == [
        "double: double 0",
        "overlap: overlap 0; and 2 more (--json)",
    ]
    assert lines[begin + 2].startswith("not tried")
