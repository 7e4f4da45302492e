"""`oncecron timeline`: what became of every tick, by the installed console script."""

from collections.abc import Callable

from answers import refused
from servers.oncecron import Oncecron

Hosts = Callable[..., Oncecron]


def test_wrong_words_are_refused(new_host: Hosts) -> None:
    """With what is meant."""
    host = new_host("host-a")
    host.run("billing", "--tick", "t", "--", "true")
    refused(host("timeline", "biling"), 1, "no host has fired key biling; did you mean billing?")
    refused(host("timeline", "--until", "soon"), 64, "--until: 'soon' is not a time; write 90m")
    refused(host("timeline", "--since", "1h", "--until", "2h"), 64, "nothing lies between them")
    assert host("timeline", "--since", "1970-01-01").status == 0
    refused(host("timeline", "--since", "1969-01-01"), 64, "too far away; write a time from 1970")


def test_nothing_has_run_yet(new_host: Hosts) -> None:
    """A sentence, and no picture; machines get an empty answer."""
    host = new_host("host-a")
    assert host("init").status == 0
    assert host("timeline", "--json").out == b"[]\n"
    assert host("timeline").err == "oncecron: no host has fired a key yet\n"
