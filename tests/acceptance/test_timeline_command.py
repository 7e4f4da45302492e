"""`oncecron timeline`: what became of every tick, by the installed console script."""

from collections.abc import Callable

from servers.oncecron import Oncecron

Hosts = Callable[..., Oncecron]


def test_nothing_has_run_yet(new_host: Hosts) -> None:
    """A sentence, and no picture; machines get an empty answer."""
    host = new_host("host-a")
    assert host("init").status == 0
    assert host("timeline", "--json").out == b"[]\n"
    assert host("timeline").err == "oncecron: no host has fired a key yet\n"
