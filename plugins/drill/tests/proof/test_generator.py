"""The generator: a seed gives the same firings, every host fires every tick, and a few minutes hold hundreds."""

from collections import Counter

from oncecron_drill.generator import KEYS, shots
from oncecron_drill.run_under_faults import CALM_BY_CLOCKS, PLANNED, SOON

HOSTS = ["host-a", "host-b", "host-c"]


def test_a_seed_is_repeatable() -> None:
    """The same seed gives the same firings, another one others."""
    first = shots(7, KEYS, HOSTS, 1000.0, 60)
    assert shots(7, KEYS, HOSTS, 1000.0, 60) == first
    assert shots(8, KEYS, HOSTS, 1000.0, 60) != first


def test_every_host_fires_every_tick() -> None:
    """A named tick is fired once by each host, and once more where a person does it again."""
    fired = Counter(
        (shot.key.name, shot.tick, shot.again)
        for shot in shots(7, KEYS, HOSTS, 1000.0, 60)
        if shot.tick
    )
    assert {count for (_, _, again), count in fired.items() if not again} == {len(HOSTS)}
    assert {count for (_, _, again), count in fired.items() if again} == {1}


def test_what_holders_leave_to_others_is_fired() -> None:
    """Failover with names, instants and without a tick, retries, and both; parts, with failover and without."""
    kinds = {("failover" in key.run, "retries" in key.run, key.parts > 1, key.rule) for key in KEYS}
    assert kinds >= {
        (True, False, False, "name"), (True, False, False, "instant"), (True, False, False, "none"),
        (False, True, False, "name"), (True, True, False, "name"),
        (False, False, True, "name"), (True, False, True, "name"),
    }  # fmt: skip


def test_each_key_is_fired_until_the_calm_is_over() -> None:
    """In it the ticks that are left come every few seconds."""
    planned = shots(7, KEYS, HOSTS, 1000.0, 60 + PLANNED)
    left = {(shot.key, shot.tick or shot.at) for shot in planned if shot.at > 60 + SOON}
    for key in KEYS:
        if key.rule in ("name", "instant"):
            assert sum(each is key for each, _ in left) * SOON >= CALM_BY_CLOCKS, key.name
