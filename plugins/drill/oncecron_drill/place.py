"""Where a drill takes place: a namespace of its own in the user's store, proxies in front of it, hosts beside it."""

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from oncecron.core.errors import OncecronError, StoreError
from oncecron.host.installation import own_command
from oncecron.stores import open_reader
from oncecron.stores.address import Address
from oncecron_drill.faults import StoreFault
from oncecron_drill.firing_hosts import DrillHost
from oncecron_drill.keeper import MARK
from oncecron_drill.proxy import FaultProxy
from oncecron_drill.store_watch import Watch
from oncecron_drill.stores import DrilledStore

LARGEST_ERROR = 120.0
"""Seconds by which a host's clock may be wrong."""
WELL_WITHIN = 60.0
"""Seconds in which a store must answer when every fault is undone."""


class Place:
    """The store as the run sees it: see `oncecron_drill.wanted.Store`."""

    faults: Sequence[StoreFault] = ()

    def __init__(
        self, store: DrilledStore, watch: Watch, address: Address | None, namespace: str
    ) -> None:
        self._store = store
        self._address = address
        self._namespace = namespace
        self._watch = watch
        self.proxies: Mapping[str, Sequence[FaultProxy]] = {}
        self._untouched: Sequence[FaultProxy] = ()
        """Of the beats: no fault strikes them, and they cost what those of a host do."""
        self._write = store.writer(())

    def stand_between(self, names: Sequence[str], directory: Path) -> None:
        """Start the proxies of these hosts and of the beats, one for each server; the keeper knows the directory."""
        marked = ("/usr/bin/env", f"{MARK}={directory}/proxies")
        *theirs, self._untouched = [
            [FaultProxy(server, prefix=marked) for server in self._store.servers]
            for _ in (*names, "the beats")
        ]
        self.proxies = dict(zip(names, theirs, strict=True))
        self._write = self._store.writer([proxy.port for proxy in self._untouched])

    def address_for(self, name: str) -> tuple[str, dict[str, str]]:
        """Return the address for a host, and what its environment needs."""
        return self._store.address_through([proxy.port for proxy in self.proxies.get(name, ())])

    def close(self) -> None:
        """End the proxies."""
        for proxies in (*self.proxies.values(), self._untouched):
            for proxy in proxies:
                proxy.close()

    def fenced_write(self) -> list[str]:
        """Return nothing: no job of a drill writes elsewhere."""
        return []

    def register(self) -> list[tuple[str, int]]:
        """Return nothing likewise."""
        return []

    def leftovers(self) -> list[str]:
        """Return the leases, and the session locks without one, that are left in the namespace."""
        if self._address is None:
            return []
        try:
            with contextlib.closing(open_reader(self._address, self._namespace)) as reader:
                leases = reader.leases()
        except OncecronError as error:
            return [f"the store cannot be asked what is left: {error}"]
        return [
            f"the lease of {each.key} shard {each.shard} by {each.host} (pid {each.pid}) is {each.state}"
            for each in leases
        ]

    def well(self) -> None:
        """Wait until the store takes a write; a while, since whoever breaks it may mend it later."""
        end = time.monotonic() + WELL_WITHIN
        while time.monotonic() < end:
            try:
                self.beat()
            except StoreError:
                time.sleep(0.5)  # between two tries
            else:
                return

    def beat(self) -> None:
        """Write once, by the way of a host that no fault touches."""
        self._watch.beat(self._write)


def make_hosts(
    count: int,
    random: Random,
    place: Place,
    directory: Path,
    namespace: str,
    address: Address | None,
) -> list[DrillHost]:
    """Return the hosts: the first with a right clock and no proxy, the last with a full disk unless the store is on it.

    The clocks of all but the first are wrong by up to two minutes; not on SQLite, whose hosts are one machine, nor with
    another wrapper, which cannot be told a time.
    """
    is_one_machine = address is None or address.kind == "sqlite"
    names = [f"drill-{number}" for number in range(1, count + 1)]
    place.stand_between(names[1:], directory)
    config = _configuration(directory, address)
    hosts = []
    for name in names:
        url, more = place.address_for(name)
        environment = {**more, "ONCECRON_NAMESPACE": namespace, "ONCECRON_CONFIG": str(config)}
        host = DrillHost(name, directory, url, oncecron=own_command(), more=environment)
        if name != names[0]:
            error = 0.0 if is_one_machine else LARGEST_ERROR
            host.give_clock(round(random.uniform(-error, error), 1))
        hosts.append(host)
    hosts[-1].is_full = len(hosts) > 1 and not is_one_machine
    return hosts


def _configuration(directory: Path, address: Address | None) -> Path:
    """Write the configuration of the hosts: what the store needs, and no job, ping or log of the user's."""
    path = directory / "drill.toml"
    table = "".join(
        f"{name} = {json.dumps(value)}\n" for name, value in (address.options if address else ())
    )
    path.write_text(f"[redis]\n{table}" if table else "")
    os.chmod(path, 0o600)
    return path
