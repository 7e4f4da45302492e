"""One run of the proof suite: the hosts and stores are machines where there is root, and people work meanwhile.

A child of ours dies with the thread that started it; so the operator, one thread, keeps the store and its servers.
"""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import clusters
from machine_faults import MachineFaults
from machine_hosts import MachineHost
from people import People
from servers import Host, Network

from oncecron_drill import history
from oncecron_drill.faults import HostFaults
from oncecron_drill.firing_hosts import FiringHost
from oncecron_drill.generator import TTL
from oncecron_drill.run_under_faults import Run
from oncecron_drill.wanted import Wanted

EACH = 10.0
"""Seconds between two lines of progress."""
HOSTS = ("host-a", "host-b", "host-c")


@dataclasses.dataclass(frozen=True)
class Proof(Wanted):
    """What a run is asked for; `rooted`: hosts are namespaces."""

    rooted: bool = True


class ProofRun(Run):
    """A run on machines."""

    cluster: Any

    def __init__(
        self, wanted: Proof, hosts: list[MachineHost], cluster: Any, stores: list[Host], operator: Executor,
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(wanted, hosts, cluster, operator)
        self._tell = tell
        self._next_word = history.now() + EACH
        self._stores = stores
        operator_url = operator.submit(cluster.operator_url).result()
        self.people = People(
            Random(f"{wanted.seed} people"), hosts, [key.name for key in wanted.keys], wanted.oncecron,
            operator_url, self.recorder, self.running_keys,
        )  # fmt: skip

    def running_keys(self) -> list[str]:
        """Return the keys that are under way, a name for each firing; those with items are not for people to stop."""
        of_items = {key.name for key in self.wanted.item_keys}
        return [each.key for each, _ in self.living.values() if each.key not in of_items]

    def meanwhile(self) -> None:
        self.people.step()

    def look(self) -> bool:
        """See which of their commands have ended."""
        self.people.look()
        return self.people.waiting

    def give_back(self) -> bool:
        return self.people.give_back()

    def say_how_far(self) -> None:
        """Print a line every ten seconds."""
        if history.now() < self._next_word:
            return
        self._next_word = history.now() + EACH
        firings, faults = self.recorder.firings, self.recorder.faults
        last = max(faults.values(), key=lambda fault: fault.at, default=None)
        self._tell(
            f"{self.elapsed:5.0f} s  {len(firings)} firings, {len(faults)} faults, "
            f"{len(self.living)} under way; last: {f'{last.kind} ({last.target})' if last else 'none'}"
        )

    def faults_of(self, host: FiringHost, random: Random) -> HostFaults:
        """Return what can be done to a host and its network."""
        assert isinstance(host, MachineHost)
        proxies = self.store.proxies.get(host.name, ())
        return MachineFaults(host, self._stores, proxies, random, lambda: self.firings_of(host))


def one(wanted: Proof, tell: Callable[[str], None]) -> history.History:
    with ExitStack() as stack:
        operator = stack.enter_context(ThreadPoolExecutor(1, "operator"))
        network = Network() if wanted.rooted else None
        if network:
            stack.callback(network.remove)
        machines = {name: network.host(name) if network else None for name in HOSTS}
        script = Path(wanted.oncecron[0])
        cluster = operator.submit(
            clusters.start, wanted.store, network, wanted.directory, TTL, script=script
        ).result()
        stack.callback(lambda: operator.submit(cluster.stop).result())
        others = (*HOSTS, clusters.LOOKOUT)
        stores = [host for host in network.hosts if host.name not in others] if network else []

        def host(name: str) -> MachineHost:
            # All but the first are behind proxies.
            url = operator.submit(lambda: cluster.url(name, proxied=name != HOSTS[0])).result()
            return MachineHost(name, machines[name], wanted.directory, url)

        hosts = [host(name) for name in HOSTS]
        hosts[-1].give_clock(0)  # a clock that can be moved
        run = ProofRun(wanted, hosts, cluster, stores, operator, tell)
        stack.callback(run.close)
        run.go()
    return history.load(wanted.directory)
