"""--spread: each host has its own turn at each tick."""

from collections import Counter
from itertools import islice

from oncecron.host.local_time import next_ticks
from oncecron.run.spec import turn

HOSTS = [f"web{number}.example.net" for number in range(1, 6)]
TICKS = [each.text or "" for each in islice(next_ticks("* * * * *", "UTC", 1e9), 2000)]


def test_no_host_wins_always() -> None:
    """Each of five hosts is the first one at about a fifth of the ticks."""
    first = Counter(min(HOSTS, key=lambda host: turn("k", tick, host)) for tick in TICKS)
    assert all(300 < first[host] < 500 for host in HOSTS), first


def test_the_jobs_of_a_minute_are_spread() -> None:
    """Fifty keys at one tick leave no tenth of the time empty, and fill none."""
    turns = [turn(f"job-{number}", TICKS[0], host) for number in range(50) for host in HOSTS]
    assert all(0 <= each < 1 for each in turns)
    tenths = Counter(int(each * 10) for each in turns)
    assert all(10 <= tenths[number] <= 45 for number in range(10)), tenths


def test_a_firing_that_is_started_again_has_the_same_turn() -> None:
    """Whatever the process."""
    assert turn("k", "t", "h") == turn("k", "t", "h")
    assert turn("k", "2026-11-20T02:00Z", "web1") == 0.9231349462643266
