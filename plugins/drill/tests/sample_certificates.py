"""A certificate for the tests of what shows it."""

from __future__ import annotations

import dataclasses
from typing import Any

from oncecron_drill.certificate import Certificate, FaultCount

CLEAN = Certificate(
    store="postgresql://cron@db.example.com/oncecron",
    kind="postgres",
    store_version="PostgreSQL 17.6",
    topology=["db.example.com:5432 takes writes"],
    oncecron="0.1.0",
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
    faults={"kill guard": FaultCount(9, 8), "cut off": FaultCount(4, 4)},
    takeovers=6,
    longest_without_runner=7.2,
    latency={"p50": 0.061, "p95": 0.143, "p99": 0.412},
    events=[("2026-11-20T14:03:02Z", "two sessions ended")],
    violations=[],
    not_tried=["a failover of the store"],
    verdict="clean",
    why="No promise was broken.",
)


def certificate(**changes: Any) -> Certificate:
    """Return a clean one with some fields changed."""
    return dataclasses.replace(CLEAN, **changes)
