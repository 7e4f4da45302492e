"""What `jobs`, `locks`, `check`, `audit` and `metrics` say of the items of `each`."""

import json
from pathlib import Path

from log_of import Store
from servers import eventually
from servers.oncecron import Ended, Oncecron

IN_DOUBT = ("--items", "seq 4", "--batch", 4, "--", "sh", "-c", "echo ok 1 >&3; exit 1")


def each(host: Oncecron, tick: str, *words: object) -> Ended:
    """Run it once."""
    return host("each", "--key", "k", "--tick", tick, *words, stdin=-3)


def findings(host: Oncecron, *command: str) -> list[tuple[object, ...]]:
    """Return kind, tick and reason of what concerns items."""
    told = json.loads(host(*command, "--json").out)
    found = told["findings"] if command[0] == "check" else told
    about = [(row["finding"], row["tick"], row["reason"]) for row in found]
    return [row for row in about if row[0] in ("in-doubt", "left")]


def test_items_in_doubt_are_a_finding(store: Store, host: Oncecron, operator: Oncecron) -> None:
    """Of `check`, `audit` and `metrics`, until somebody has dealt with them."""
    assert each(host, "one", *IN_DOUBT).status == 1
    doubt = ("in-doubt", "one", "3 of 4 items of the tick one in doubt")
    assert findings(host, "check") == [doubt]
    assert findings(host, "audit") == [doubt]
    assert host("audit").status == 1
    told = host("check")
    assert told.status == 2
    assert " in-doubt=3;;0 " in told.out.decode()
    assert " left=0;0 " in told.out.decode()
    assert "\ncritical: k 3 of 4 items of the tick one in doubt\n" in told.out.decode()
    assert 'oncecron_items_in_doubt{key="k"} 3.0\n' in host("metrics").out.decode()
    assert operator("items", "k", "--retry").status == 0
    assert findings(host, "check") == findings(host, "audit") == []


def test_check_is_well_once_all_items_are_done(
    store: Store, host: Oncecron, operator: Oncecron
) -> None:
    """The slot stays failed on record, and the key is not well before the last one is settled."""

    def kinds() -> set[str]:
        return {row["finding"] for row in json.loads(host("check", "--json").out)["findings"]}

    assert each(host, "one", *IN_DOUBT).status == 1
    assert operator("items", "k", "--item", "2", "--item", "3", "--done").status == 0
    assert kinds() == {"failed", "in-doubt"}
    assert operator("items", "k", "--item", "4", "--done").status == 0
    assert host("check").status == 0
    [job] = json.loads(host("jobs", "--json").out)
    assert (job["outcome"], job["exit_code"], job["settled"]) == ("failed", 1, True)
    assert json.loads(host("history", "--json").out)[0]["outcome"] == "failed"
    assert each(host, "one", "--again", "--items", "seq 4", "--", "false").status == 0
    assert host("check").status == 0
    assert each(host, "two", "--items", "seq 1", "--", "false").status == 1
    assert kinds() == {"failed"}


def test_check_names_what_an_older_tick_has_left(
    store: Store, host: Oncecron, operator: Oncecron
) -> None:
    """No newer tick runs them; a firing of the older one does. `audit` reports older lists too."""
    each(host, "one", *IN_DOUBT)
    assert operator("items", "k", "--item", "2", "--retry").status == 0
    assert findings(host, "check") == [("in-doubt", "one", "2 of 4 items of the tick one in doubt")]
    assert each(host, "two", "--items", "seq 2", "--", "true").status == 0
    left = ("left", "one", "1 item of the tick one left, and a newer tick has begun")
    assert findings(host, "check") == [left]
    assert [row[1] for row in findings(host, "audit")] == ["one"]
    assert 'oncecron_items_left{key="k"} 1.0\n' in host("metrics").out.decode()


def test_jobs_and_locks_show_how_far_a_list_is(
    store: Store, host: Oncecron, public_path: Path
) -> None:
    """While it runs, and `jobs` afterwards; without a list there is no such column."""
    assert host.run("plain", "--tick", "t", "--", "true").status == 0
    assert "PROGRESS" not in host("jobs").out.decode()
    gate = public_path / "gate"
    waits = f'test "$1" != 3 || until test -e {gate}; do sleep 0.05; done'
    firing = host.start(
        *("each", "--key", "k", "--tick", "one", "--items", "seq 5", "--jobs", 1),
        *("--slots", 1, "--", "sh", "-c", waits, "sh"),
        stdin=-3,
    )
    assert eventually(lambda: _items(host("jobs")) == ["2/5"], 60)
    assert _items(host("locks")) == ["2/5"]
    [lease] = [row for row in json.loads(host("locks", "--json").out) if row["progress"]]
    assert lease["progress"] == "2/5"
    gate.touch()
    assert firing.wait().status == 0
    assert _items(host("jobs")) == ["5/5"]
    summary = {row["key"]: row for row in json.loads(host("jobs", "--json").out)}
    assert summary["k"]["progress"] == "5/5"
    assert summary["plain"]["progress"] is None


def _items(told: Ended) -> list[str]:
    title, *lines = told.out.decode().splitlines()
    if "PROGRESS" not in title:
        return []
    end = title.index("PROGRESS") + len("PROGRESS")
    return [line[:end].split()[-1] for line in lines if line.startswith("k ")]
