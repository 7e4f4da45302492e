"""The rules and the dashboard for Prometheus and Grafana: valid, and of metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus import promtool

from oncecron.log.job_summary import JobSummary
from oncecron.watch.findings import Finding, kinds
from oncecron_web.metrics import OF_JOBS, Reading, text_of

DOCS = Path(__file__).resolve().parents[4] / "docs"
RULES = DOCS / "prometheus" / "rules.yml"
METRIC = re.compile(r"\boncecron_[a-z_]+")
OF_HOST = {
    *("up", "collected_timestamp_seconds", "spooled_records", "incomplete", "failing_channels"),
    "info",
    "host_silent",
}
OF_FINDINGS = {kind.metric for kind in kinds().values() if kind.metric}
EVERY = {f"oncecron_{name}" for name in {*OF_HOST, *OF_JOBS, *OF_FINDINGS}}


def test_the_page_has_every_metric() -> None:
    """And no other."""
    page = (DOCS / "commands" / "metrics.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(oncecron_\w+)`", page, re.MULTILINE)) == EVERY
    answer = text_of(Reading(0.0, findings=[], jobs=[])).decode()
    assert set(re.findall(r"^# TYPE (\w+) gauge$", answer, re.MULTILINE)) == EVERY


def test_a_finding_counts_for_its_key() -> None:
    """Those of several shards together."""
    fields = dict.fromkeys(JobSummary._fields)
    jobs = [JobSummary(**{**fields, "key": key}) for key in ("a", "b")]
    found = [Finding("expired", "critical", "b", shard, 1, None, None, "") for shard in (0, 1)]
    text = text_of(Reading(0.0, jobs=jobs, findings=found)).decode()
    assert 'oncecron_expired_leases{key="a"} 0.0\noncecron_expired_leases{key="b"} 2.0\n' in text


def test_the_rules_are_valid() -> None:
    """By promtool; each is about metrics that there are, and each finding has an alert."""
    promtool("check", "rules", str(RULES))
    rules = [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    used = set(METRIC.findall(" ".join(rule["expr"].replace(":max", "") for rule in rules)))
    assert used <= EVERY
    alerts = " ".join(rule["expr"] for rule in rules if "alert" in rule)
    recorded = {rule["record"] for rule in rules if "record" in rule}
    for name in OF_FINDINGS:
        assert f"key:oncecron_{name}:max" in recorded
        assert f"key:oncecron_{name}:max > 0" in alerts


def test_a_file_that_is_not_renewed_does_not_count(tmp_path: Path) -> None:
    """Prometheus' own unit test of the rules: one old host, one that is well, and then none."""
    test = tmp_path / "test.yml"
    test.write_text(TEST.format(rules=RULES))
    promtool("test", "rules", str(test))


def test_the_dashboard_is_valid() -> None:
    """JSON with panels that do not share a number, about metrics that there are."""
    board = json.loads((DOCS / "prometheus" / "dashboard.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 0
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert all(METRIC.search(query) for query in queries)
    assert {name for query in queries for name in METRIC.findall(query)} <= EVERY


TEST = """\
rule_files: ["{rules}"]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'oncecron_collected_timestamp_seconds{{job="n", instance="old"}}'
        values: "0x60"
      - series: 'oncecron_failures{{job="n", instance="old", key="healed"}}'
        values: "3x60"
      - series: 'oncecron_collected_timestamp_seconds{{job="n", instance="new"}}'
        values: "0+60x30 1800x30"
      - series: 'oncecron_failures{{job="n", instance="new", key="healed"}}'
        values: "0x60"
      - series: 'oncecron_failures{{job="n", instance="new", key="bad"}}'
        values: "2x60"
    alert_rule_test:
      - eval_time: 20m
        alertname: OncecronFailed
        exp_alerts:
          - exp_labels: {{severity: critical, key: bad}}
            exp_annotations:
              summary: bad failed, 2 ticks in a row.
              description: Run `oncecron why bad`.
      - eval_time: 20m
        alertname: OncecronMetricsAreOld
        exp_alerts:
          - exp_labels: {{severity: warning, job: n, instance: old}}
            exp_annotations:
              summary: The metrics of oncecron on old are old.
              description: cron or `oncecron metrics` does not run there.
      - eval_time: 50m
        alertname: OncecronFailed
        exp_alerts: []
      - eval_time: 50m
        alertname: OncecronNoMetrics
        exp_alerts:
          - exp_labels: {{severity: critical}}
            exp_annotations:
              summary: No host writes metrics of oncecron.
              description: Check cron and node_exporter, or `oncecron metrics --listen`, on every host.
"""
