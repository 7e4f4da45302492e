"""The generator: a seed gives the same firings, every host fires every tick, and a few minutes hold hundreds."""

from collections import Counter

from generator import KEYS, shots

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


def test_two_minutes_hold_hundreds_of_ticks() -> None:
    """Shortened schedules give several hundred (key, tick) in a few minutes."""
    ticks = {(shot.key.name, shot.tick) for shot in shots(7, KEYS, HOSTS, 1000.0, 180) if shot.tick}
    assert len(ticks) > 200
