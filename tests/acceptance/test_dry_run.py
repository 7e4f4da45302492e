"""`oncecron run --dry-run`, by the installed console script."""

import os
from pathlib import Path

from answers import answer, refused
from log_of import Store
from servers.oncecron import Ended, Oncecron


def said(ended: Ended) -> dict[str, str]:
    assert ended.err == ""
    lines = (line.partition("  ") for line in ended.out.decode().splitlines())
    return {name: text.strip() for name, _, text in lines}


def test_what_a_firing_would_do(store: Store, host: Oncecron, public_path: Path) -> None:
    """Which tick, where, what, and whether now; nothing of it is recorded, and the command does not run."""
    file = public_path / "ran"
    words = (
        "run",
        "--key",
        "k",
        "--schedule",
        "0 2 * * *",
        "--tz",
        "UTC",
        "--retries",
        "2",
        "--retry-delay",
        "1ms",
    )
    command = ("--", "touch", file, "--password=secret")
    ended = host(*words, "--dry-run", *command)
    found = said(ended)
    assert (ended.status, found["answer"]) == (0, "would start now (attempt 1)")
    assert found["key"] == "k"
    assert found["tick"].endswith("of 0 2 * * * in UTC")
    assert "T02:00Z (" in found["tick"]
    assert found["store"].endswith(", namespace oncecron")
    assert found["command"] == f"touch {file} --password=***"
    assert (os.path.basename(found["program"]), found["directory"]) == ("touch", os.getcwd())
    assert "retries 2" in found["options"]
    assert not file.exists()
    host.run("other", "--tick", "t", "--", "true")  # so that the store is there
    assert [each["key"] for each in answer(host, "jobs")] == ["other"]
    assert answer(host, "history", "--skips") == []
    assert [each["keys"] for each in answer(host, "hosts")] == [1]
    assert host(*words, *command).status == 1  # touch knows no --password
    ended = host(*words, "--dry-run", *command)
    assert ended.status == 75
    assert "would be skipped: k tick " in said(ended)["answer"]
    assert " has already run on host-a (pid " in said(ended)["answer"]
    assert answer(host, "history", "--skips") == []


def test_nothing_is_installed(store: Store, host: Oncecron) -> None:
    """A namespace that is not there stays away, although a firing would make it; nor is there a spool."""
    before = host("jobs", "--namespace", "fresh")
    ended = host(
        "run", "--key", "k", "--tick", "t", "--namespace", "fresh", "--dry-run", "--", "true"
    )
    assert (ended.status, said(ended)["answer"]) == (0, "would start now (attempt 1)")
    after = host("jobs", "--namespace", "fresh")
    assert (after.status, after.out, after.err) == (before.status, before.out, before.err)


def test_what_keeps_it_from_a_start(host: Oncecron, operator: Oncecron, public_path: Path) -> None:
    """A broken command, a pause, a run that waits for another; a [job.KEY] section counts; `each` has no dry run."""
    refused(host("run", "--key", "k", "--dry-run", "--", "/no/such"), 127, "/no/such was not found")
    refused(host("each", "--key", "k", "--dry-run", "--", "true"), 64, "--dry-run")
    file = public_path / "config.toml"
    file.write_text('[job.k]\ncommand = "exit 3"\ntimeout = "5m"\n')
    words = ("run", "--key", "k", "--tick", "x", "--config", file, "--dry-run")
    found = said(host(*words))
    assert found["command"].endswith("-c 'exit 3'")
    assert "timeout 5m00s" in found["options"]
    running = host.fire("k", "--tick", "x", "--", "sleep", "60")
    running.job()
    for option, answered in (("--wait=1m", "would wait: "), ("--wait=0s", "would be skipped: ")):
        ended = host(*words, option)
        assert (ended.status, said(ended)["answer"].startswith(answered)) == (75, True)
    running.process.terminate()
    running.wait()
    operator("pause", "k")
    assert "k is paused since" in said(host(*words))["answer"]
    assert answer(host, "history", "--skips") == []


def test_a_store_that_is_away(host: Oncecron) -> None:
    """As a firing says it, and nothing is spooled."""
    host.environment["ONCECRON_STORE"] = "redis://127.0.0.1:1"
    refused(host("run", "--key", "k", "--dry-run", "--", "true"), 69, "Connection refused")
    assert not [*Path(host.environment["XDG_STATE_HOME"]).rglob("*")]
