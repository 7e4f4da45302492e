"""Hosts of the tests: namespaces of the kernel, with names and networks of their own.

A namespace lives as long as its holder, a sleeping process that dies with the tests, so nothing
has a name on the real machine and nothing can be left behind. The hosts of one Network hang on a
bridge that has a namespace of its own too: the subnet exists between them and nowhere else.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from servers.process import Process, as_ourselves, end, process_table, send, spawn, wait_gone
from servers.require import not_proven, program, require_root

HOLD = "{setup}\necho ready\nexec sleep infinity"
CONGESTION_CONTROL = "echo reno >/proc/sys/net/ipv4/tcp_congestion_control"
"""In place of the machine's default. With bbr, which sends at the pace that it has estimated, packets between
namespaces were seen to wait for up to ten seconds on a busy machine: a fault that nobody had recorded."""
CLONE_NEWNET = 0x40000000
"""Of linux/sched.h; `os` knows it from Python 3.12 on."""
SUBNET = "10.203.0"
MOST_HOSTS = 32
_LIBC = ctypes.CDLL(None, use_errno=True)


class Machine:
    """Some namespaces with one holder, and what runs in them.

    `kinds` are the namespaces that are new: `uts`, `net`, `mount`. `setup` is shell run in them
    first, `base` a prefix such as another machine's, whose other namespaces are shared.
    """

    def __init__(
        self, name: str, kinds: Sequence[str], *, setup: str = "", base: Sequence[str] = ()
    ) -> None:
        require_root("a host of its own (namespaces)")
        self.name = name
        self._own = "mnt" if "mount" in kinds else "uts"
        flags = [f"--{kind}" for kind in kinds]
        if "uts" in kinds:
            setup = f"echo {name} >/proc/sys/kernel/hostname\n{setup}"
        if "net" in kinds:
            setup = f"{CONGESTION_CONTROL}\n{setup}"
        self.holder = spawn(
            [*base, program("unshare"), *flags, "--", *as_ourselves(),
             "/bin/sh", "-ec", HOLD.format(setup=setup)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._wait_until_set_up()
        self.prefix = [program("nsenter"), "--target", str(self.holder.pid)]
        # --root: entering a mount namespace would otherwise also leave a chroot.
        self.prefix += ["--uts", "--net", *(["--mount", "--root"] if "mount" in kinds else [])]
        self.prefix += ["--"]

    def popen(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a process here; its pid is the command's own."""
        return spawn([*self.prefix, *as_ourselves(), *command], **options)

    def run(self, command: Sequence[str], **options: Any) -> str:
        """Run a command here, which must succeed, and return its standard output."""
        done = subprocess.run(
            [*self.prefix, *command], check=False, capture_output=True, text=True, **options
        )
        if done.returncode:
            raise RuntimeError(f"{command} on {self.name}: {done.returncode}\n{done.stderr}")
        return str(done.stdout)

    def processes(self) -> list[Process]:
        ours = _namespace(self.holder.pid, self._own)
        others = (p for p in process_table() if p.pid != self.holder.pid)
        return [process for process in others if _namespace(process.pid, self._own) == ours]

    def sigstop(self) -> None:
        """Freeze all its processes, as a suspended virtual machine; its kernel goes on."""
        frozen = -1
        while frozen != (frozen := len(self.processes())):  # the children born in between
            send(self.processes(), signal.SIGSTOP)

    def sigcont(self) -> None:
        send(self.processes(), signal.SIGCONT)

    def power_off(self) -> None:
        """Kill all its processes: first stopped, so that none sees another's end."""
        self.sigstop()
        everybody = self.processes()
        send(everybody, signal.SIGKILL)
        wait_gone(everybody)

    def remove(self) -> None:
        """Kill everything here and let the namespaces go."""
        if self.holder.poll() is None:
            self.power_off()
        end(self.holder, signal.SIGKILL)

    def _wait_until_set_up(self) -> None:
        assert self.holder.stdout is not None
        assert self.holder.stderr is not None
        if self.holder.stdout.readline() == b"ready\n":
            return
        complaint = self.holder.stderr.read().decode()
        end(self.holder, signal.SIGKILL)
        if "Operation not permitted" in complaint:
            not_proven(f"this machine allows no namespaces: {complaint}")
        raise RuntimeError(f"host {self.name}: {complaint}")


class Host(Machine):
    """A host of a Network, with a hostname and an address of its own; made by `network.host`."""

    def __init__(self, network: "Network", name: str, number: int) -> None:
        super().__init__(name, ["uts", "net"])
        self.network = network
        self.address = f"{SUBNET}.{number}"
        self._port = f"port{number}"
        network.attach(self._port, _hardware_address(number), self.holder.pid)
        self._ip(
            "link set lo up",
            f"address add {self.address}/24 dev eth0",
            "link set eth0 up",
            *_neighbours(),
        )

    @contextlib.contextmanager
    def network_of_thread(self) -> Iterator[None]:
        """Let the sockets that this thread makes meanwhile be this host's; setns(2) moves one thread alone."""
        with (
            open(f"/proc/{self.holder.pid}/ns/net") as its,
            open("/proc/thread-self/ns/net") as own,
        ):
            _enter_network(its.fileno())
            try:
                yield
            finally:
                _enter_network(own.fileno())

    def cut(self, *, silent: bool = True) -> None:
        """Cut it off from the others.

        Silently its packets, and those to it, vanish in the switch: nobody is told, and no error
        of the kernel says so, as when a router far away is dead. Otherwise its own link goes
        down: it has no route at once, while the others are told nothing.
        """
        if silent:
            self.network.unplug(self._port)
        else:
            self._ip("link set eth0 down")

    def heal(self) -> None:
        self.network.plug(self._port)
        self._ip("link set eth0 up", *_neighbours())

    def _ip(self, *commands: str) -> None:
        self.run([program("ip"), "-batch", "-"], input="\n".join(commands) + "\n")


class Network:
    """A switch, and the hosts that hang on it."""

    def __init__(self) -> None:
        self.switch = Machine("switch", ["uts", "net"])
        self.hosts: list[Host] = []
        self._ip("link add bridge0 type bridge forward_delay 0", "link set bridge0 up")

    def host(self, name: str) -> Host:
        number = len(self.hosts) + 1
        assert number < MOST_HOSTS, "the hosts know the hardware addresses of so many only"
        self.hosts.append(Host(self, name, number))
        return self.hosts[-1]

    def attach(self, port: str, hardware_address: str, pid: int) -> None:
        """Give the namespaces of a process a cable to the switch."""
        self._ip(f"link add {port} type veth peer name eth0 address {hardware_address} netns {pid}")
        self.plug(port)

    def plug(self, port: str) -> None:
        """Put a cable into the switch."""
        self._ip(f"link set {port} master bridge0 up")

    def unplug(self, port: str) -> None:
        """Take a cable out of the switch; its host sees a link that is up and hears nothing."""
        self._ip(f"link set {port} nomaster")

    def remove(self) -> None:
        for host in self.hosts:
            host.remove()
        self.switch.remove()

    def _ip(self, *commands: str) -> None:
        self.switch.run([program("ip"), "-batch", "-"], input="\n".join(commands) + "\n")


def _hardware_address(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def _enter_network(namespace: int) -> None:
    if _LIBC.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns(2)")


def _neighbours() -> list[str]:
    # Known for good: address resolution would notice a silent cut and report "no route to host".
    return [
        f"neighbour replace {SUBNET}.{number} lladdr {_hardware_address(number)}"
        " dev eth0 nud permanent"
        for number in range(1, MOST_HOSTS)
    ]


def _namespace(pid: int, kind: str) -> str | None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    return None
