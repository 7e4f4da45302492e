"""The faults of machines: their networks, beside what befalls processes, clocks and proxies."""

from collections.abc import Callable, Sequence
from random import Random

from machine_hosts import MachineHost
from servers import FaultProxy, Host

from oncecron_drill.faults import BEYOND, Done, HostFaults, Kind
from oncecron_drill.history import Firing


class MachineFaults(HostFaults):
    """What can be done to one host of the proof suite."""

    host: MachineHost

    def __init__(
        self, host: MachineHost, stores: Sequence[Host], proxies: Sequence[FaultProxy], random: Random,
        firings: Callable[[], list[Firing]],
    ) -> None:  # fmt: skip
        super().__init__(host, proxies, random, firings)
        self._stores = stores

    def further(self) -> list[Kind]:
        return self._of_the_network() if self.host.machine and self._stores else []

    def _of_the_network(self) -> list[Kind]:
        host, stores = self.host, self._stores
        assert host.machine is not None
        cut = host.machine.cut

        def mend() -> None:
            host.mend_network(stores)

        def do(step: Callable[[], None], detail: str = "") -> Callable[[], Done]:
            return lambda: (step(), (detail, []))[1]

        def swallow(towards: str) -> Callable[[], None]:
            return lambda: host.silence(towards, stores)

        def step_back_and_cut() -> Done | None:
            if not self.has_just_begun():
                return None
            host.give_clock(host.offset - 20)
            cut()
            return f"{host.offset:+g} s", []

        def mend_both() -> None:
            mend()
            host.give_clock(0)

        found = [
            Kind("network", "cut the host off in silence", (1, 15), do(cut), mend, 2),
            Kind("network", "take the link down", (1, 10), do(lambda: cut(silent=False)), mend),
            Kind("network", "swallow what it sends", (1, 12), do(swallow("store")), mend),
            Kind("network", "swallow what it is sent", (1, 12), do(swallow("host")), mend),
            Kind("network", "reset its connections", (1, 8), do(lambda: host.reset(stores)), mend),
            Kind("network", "lose packets", (2, 10), self._lose_packets, mend),
        ]
        if host.has_clock:
            name = "set the clock back and cut the host off"
            found.append(Kind("network", name, BEYOND, step_back_and_cut, mend_both))
        return found

    def _lose_packets(self) -> Done:
        share = self.random.uniform(0.1, 0.6)
        self.host.lose(share, self._stores)
        return f"{share:.0%}", []
