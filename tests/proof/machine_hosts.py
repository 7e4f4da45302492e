"""The hosts of the proof suite: with root each is a set of namespaces (hostname, network) on a switch.

Without root they are those of the drill. Their clock is libfaketime's, so that it is wrong for every program.
"""

from collections.abc import Sequence
from pathlib import Path

from servers import Host
from servers.process import Process, as_ourselves
from servers.require import program
from servers.skew import skewed

from oncecron_drill.firing_hosts import FiringHost

CHAIN = ("--wait", "-A", "INPUT")


class MachineHost(FiringHost):
    """One host; `machine` is its namespaces, or None in the reduced form."""

    def __init__(self, name: str, machine: Host | None, directory: Path, store: str) -> None:
        super().__init__(name, directory, store)
        self.machine = machine

    def environment(self, **more: str) -> dict[str, str]:
        """Return what cron would give, and the clock."""
        plain = super().environment(**more)
        if not self.has_clock:
            return plain
        faked = skewed(0, plain)
        del faked["FAKETIME"]
        return faked | {"FAKETIME_TIMESTAMP_FILE": str(self.clock_file)}

    def words(self, command: Sequence[str]) -> list[str]:
        """Run it in the namespaces; its life is tied to ours."""
        return [*(self.machine.prefix if self.machine else []), *as_ourselves(), *command]

    def processes(self) -> list[Process]:
        return self.machine.processes() if self.machine else super().processes()

    # Its network; only with namespaces

    def silence(self, towards: str, stores: Sequence[Host]) -> None:
        """Let packets vanish where they arrive: `store`, `host`, or `both` ways."""
        for place, rule in self._rules(towards, stores):
            _filter(place, [*CHAIN, *rule, "-j", "DROP"])

    def reset(self, stores: Sequence[Host]) -> None:
        """Answer what it sends to the store by RST."""
        for place, rule in self._rules("store", stores):
            _filter(
                place, [*CHAIN, "-p", "tcp", *rule, "-j", "REJECT", "--reject-with", "tcp-reset"]
            )

    def lose(self, share: float, stores: Sequence[Host]) -> None:
        """Lose so many of the packets, at random, both ways."""
        chance = ["-m", "statistic", "--mode", "random", "--probability", f"{share:.2f}"]
        for place, rule in self._rules("both", stores):
            _filter(place, [*CHAIN, *rule, *chance, "-j", "DROP"])

    def mend_network(self, stores: Sequence[Host]) -> None:
        """Undo all of it, on both ends."""
        assert self.machine is not None
        self.machine.heal()
        _filter(self.machine, ["--wait", "-F", "INPUT"])
        for place in stores:
            rules = place.run([program("iptables"), "--wait", "-S", "INPUT"]).splitlines()
            for rule in reversed(rules):
                if f"{self.machine.address}/32" in rule:
                    _filter(place, ["--wait", "-D", *rule.split()[1:]])

    def _rules(self, towards: str, stores: Sequence[Host]) -> list[tuple[Host, list[str]]]:
        assert self.machine is not None
        at_store = [(place, ["-s", self.machine.address]) for place in stores]
        at_host = [(self.machine, ["-s", place.address]) for place in stores]
        return {"store": at_store, "host": at_host, "both": at_store + at_host}[towards]


def _filter(place: Host, words: Sequence[str]) -> None:
    place.run([program("iptables"), *words])
