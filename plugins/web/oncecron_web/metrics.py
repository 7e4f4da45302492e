"""What Prometheus reads: the keys at a glance as gauges, whose only label is `key`.

Every host says the same of a key, so rules take `max by (key)`. A store that does not answer is `oncecron_up 0`, and
then there is nothing about any key: an old value would look like a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from oncecron.watch.findings import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from oncecron.log.job_summary import JobSummary
    from oncecron.watch.findings import Finding

OF_JOBS: dict[str, tuple[str, Callable[[JobSummary], float | None]]] = {
    "running": ("1: the job runs now.", lambda job: float(job.lease == "held")),
    "running_since_timestamp_seconds": (
        "When the present run started; absent if none does.", lambda job: job.running_since,
    ),
    "last_start_timestamp_seconds": ("When the newest execution that counts started.", lambda job: job.started_at),
    "last_success_timestamp_seconds": ("When the newest success ended.", lambda job: job.succeeded_at),
    "last_failure_timestamp_seconds": ("When the newest end that was no success was.", lambda job: job.failed_at),
    "usual_duration_seconds": ("The median duration of the newest successes.", lambda job: job.usual_duration),
    "next_tick_timestamp_seconds": ("When the next tick is due.", lambda job: job.next_at),
    "overdue": ("1: a tick is due and not started yet.", lambda job: float(bool(job.overdue))),
    "paused": ("1: the key is paused.", lambda job: float(job.paused_by is not None)),
}  # fmt: skip
"""The metrics of a key beside its findings (`kinds`), each with its help and its value; None: it has none."""


class Reading(NamedTuple):
    """What one look at the store has found."""

    at: float
    """When it began, by the clock of this host."""
    spooled: int = 0
    jobs: Sequence[JobSummary] = ()
    findings: Sequence[Finding] = ()
    unreadable: bool = False
    """Whether a row of the store could not be read."""
    versions: Mapping[str, str] = {}
    """Of oncecron, of the schema and of the server, by label."""
    error: str | None = None
    """Why the store has not answered."""
    status: int = 0
    """The exit status of this error."""


class Readings(Collector):
    """Makes the metrics of a new reading at each request."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. Never raises `OncecronError`: a reading says what is wrong."""
        reading = self._read()
        yield _of_host("up", "1: the store has answered.", float(reading.error is None))
        yield _of_host("collected_timestamp_seconds", "When the store was asked.", reading.at)
        yield _of_host(
            "spooled_records", "Records that wait in the spool of this host.", reading.spooled
        )
        if reading.error is None:
            failing = sum(each.finding == "channel" for each in reading.findings)
            yield _of_host("failing_channels", "Channels of notify whose messages fail.", failing)
            yield _of_host(
                "incomplete", "1: a row of the store cannot be read.", float(reading.unreadable)
            )
            yield _of_silent_hosts(reading.findings)
            yield InfoMetricFamily("oncecron", "The versions in use.", value={**reading.versions})
            yield from _of_keys(reading)


def registry_of(read: Callable[[], Reading]) -> CollectorRegistry:
    """Return a registry whose metrics are read anew at each request."""
    registry = CollectorRegistry(auto_describe=False)  # else to register is to ask the store
    registry.register(Readings(read))
    return registry


def text_of(reading: Reading) -> bytes:
    """Return the metrics in the text format of Prometheus."""
    return generate_latest(registry_of(lambda: reading))


def _of_silent_hosts(findings: Iterable[Finding]) -> GaugeMetricFamily:
    text = "1: the host used to fire keys, and fires nothing while others fire them."
    family = GaugeMetricFamily("oncecron_host_silent", text, labels=["host"])
    for each in findings:
        if each.finding == "silent-host" and each.key is None:
            family.add_metric([each.host or ""], 1)
    return family


def _of_keys(reading: Reading) -> Iterator[GaugeMetricFamily]:
    keys = [job.key for job in reading.jobs]
    for name, kind in kinds().items():
        if kind.metric is not None:
            counts = dict.fromkeys(keys, 0)
            for finding in reading.findings:
                if finding.finding == name and finding.key is not None:
                    counts[finding.key] += finding.count
            yield _of_key(kind.metric, kind.meaning, counts.items())
    for name, (text, value_of) in OF_JOBS.items():
        yield _of_key(name, text, ((job.key, value_of(job)) for job in reading.jobs))


def _of_host(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"oncecron_{name}", text, value=value)


def _of_key(name: str, text: str, values: Iterable[tuple[str, float | None]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"oncecron_{name}", text, labels=["key"])
    for key, value in values:
        if value is not None:
            family.add_metric([key], value)
    return family
