"""Every screen in a real terminal of 60 to 200 columns: nothing wraps, and nothing important is cut."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from log_of import Store
from servers.oncecron import CONSOLE_SCRIPT, Oncecron
from servers.waiting import eventually
from terminals import Screen

LONG = (
    "backup-db-primary-eu-central-1-customer-exports-nightly-"  # and then what tells two keys apart
)
NIGHTLY = ("--schedule", "0 2 * * *", "--tz", "UTC")
WIDTHS = (60, 80, 100, 200)


@pytest.fixture
def cluster(
    store: Store, new_host: Callable[..., Oncecron], operator: Oncecron
) -> Iterator[Oncecron]:
    """Keys in many states, on hosts with long names."""
    a, b = new_host("web1.fra1.production.example.com"), new_host("db1")
    for key, command in ((f"{LONG}orders", "false"), (f"{LONG}invoices", "true"), ("sync", "true")):
        a.run(key, *NIGHTLY, "--", command)
        b.run(key, *NIGHTLY, "--", command)
    a.run(
        "import-orders",
        "--tick",
        "campaign-42-of-the-winter-sale",
        "--timeout",
        "0.3s",
        "--",
        "sleep",
        "60",
    )
    names = "東京-🚀\\ncustomer-with-a-name-of-many-letters"
    a("each", "--key", "digest", "--tick", "t1", "--items", f"printf '{names}'", "--", "false")
    reason = "the bank 銀行 moves house, and the new leased line is not there yet"
    assert operator("pause", "sync", "--reason", reason).status == 0
    running = a.fire("reindex-search", *NIGHTLY, "--", "sleep", "300")
    running.job()
    eventually(lambda: store.executions("reindex-search"))  # a log beside the store is told later
    yield a
    running.process.terminate()
    running.wait()


SCREENS = {
    "jobs never-fired-by-any-host-of-this-cluster": (r"has\s+fired\s+key", r"all\s+keys"),
    "jobs": (f"✗ failed.*\n(.*\n)*{LONG[:6]}", "▸ running", "- paused|✗ failed"),
    "history": ("OUTCOME", "✗ timed-out", "✓ succeeded", "▸ running", "campaign"),
    "history --skips": ("REASON", "done"),
    "timeline": ("to now", f"✗.*\n(.*\n)*{LONG[:6]}", "▸", "1 failed", "• ok"),
    f"timeline {LONG}orders": (r"web1\.fra1", "✗", "1 skipped"),
    "locks": ("reindex-search +.*▸ held",),
    "locks --pauses": ("sync", "銀行", "not"),
    "hosts": (r"HOST +SEEN", r"web1\.fra1\.prod"),
    "items": ("digest +t1", "LOST"),
    "items digest": ("✗ dead", "東京-🚀"),
    "audit": (),
    "check": (r"ONCECRON CRITICAL: \d of \d keys ok\n", r"critical: .*failed(.*\n)*\| missed=0;;0"),
    "why import-orders": ("timed out",),
    "next sync --since 2026-03-27": (r"Sat 28 Mar 2026 02:00 +\+00:00", "times in UTC"),
    "next '30 2 * * *' --tz Europe/Berlin --since 2026-03-27": (r"29 Mar 2026 03:00 +\+02:00", r"due\s+now"),
    "doctor": ("✓ ok +store",),
    "config show sync": ("ttl +60s +default",),
    "crontab lint crontab": (r"crontab:1: ", r"\[unguarded\]|;"),
    "prune --dry-run": ("would remove|permission denied",),
    "run --dry-run --key sync --schedule '0 2 * * *' -- true": ("would be skipped", "銀行"),
}  # fmt: skip


@pytest.mark.turns(1)
@pytest.mark.parametrize("columns", WIDTHS)
def test_every_screen_fits(cluster: Oncecron, tmp_path: Path, columns: int) -> None:
    """In columns that a terminal counts itself, CJK and emoji included."""
    (tmp_path / "crontab").write_text("0 2 30 2 * oncecron run --key a -- true | true\n")
    environment = {
        **cluster.environment,
        "LC_ALL": "C.UTF-8",
        "PATH": f"{CONSOLE_SCRIPT.parent}:{os.environ['PATH']}",
    }
    with Screen(tmp_path, environment) as screen:
        for command, expected in SCREENS.items():
            shown = "\n".join(screen.after(f"oncecron {command}", columns))
            for text in expected:
                assert re.search(text, shown), (command, text, shown)


def test_without_unicode_marks_are_letters(cluster: Oncecron, tmp_path: Path) -> None:
    """And without colours. What cannot be shown is escaped, as wide as it is then."""
    environment = {
        **cluster.environment,
        "LC_ALL": "C",
        "NO_COLOR": "1",
        "PATH": os.environ["PATH"],
    }
    with Screen(tmp_path, environment) as screen:
        jobs = screen.after(f"{CONSOLE_SCRIPT} jobs", 80)
        assert [line.split()[1:3] for line in jobs[1:-2]] == [
            *(["x", "failed"], ["x", "failed"], ["x", "failed"], [">", "running"]),
            *(["+", "ok"], ["-", "paused"]),
        ]
        assert "\x1b" not in screen.tmux("capture-pane", "-p", "-e")
        assert all(line.isascii() for line in jobs)
