"""A machine on which nothing is real but the shell: what a crontab's line does there, whoever wrote it.

Each line runs in a root directory of its own, made anew: with a shell, an interpreter for oncecron, and a stub for
every program that the line names. A stub writes to a ledger how it was called. Namespaces of the kernel keep the rest
away: the line sees no other file, process, host or network, and nothing that it starts outlives it.
"""

import functools
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from servers.oncecron import CONSOLE_SCRIPT
from servers.process import public_directory, remove_directory
from servers.require import not_proven, program, require_root

from crontabs import standard_input
from oncecron_crontab.percent_sign import shell_command

INTERPRETER = Path(sys.executable).resolve()
OURS = Path("/oncecron-test")
"""In the sandbox: what it keeps from one line to the next."""
MISSING = b"a program was not found"
"""Instead of standard error: the shell says so in other words than oncecron."""
PRINTED = "1"
"""What each stub prints: a number for `$(date +%d)`, and the name of a directory for `$(sed ...)`."""
STUB = f"""#!{INTERPRETER} -ISE
import os, sys
added = (b"ONCECRON_", b"TRACEPARENT")
variables = {{name: value for name, value in os.environb.items() if not name.startswith(added)}}
mask = os.umask(0)
words = [os.fsencode(word) for word in sys.argv]
called = words, sys.stdin.buffer.read(), os.getcwdb(), mask, sorted(variables.items())
ledger = os.open("{OURS}/ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(ledger, (repr(called) + "\\n").encode())
print("{PRINTED}")
print("stub", file=sys.stderr)
sys.exit(STATUS)
"""
SETUP = r"""
root=$1 ours=$2 path=$PATH; shift 2
PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
while [ "$1" != -- ]; do mount --bind -o ro "$1" "$root$1"; shift; done; shift
mount --bind "$ours" "$root/oncecron-test"
mount -t proc proc "$root/proc"
for device in null zero urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
status=0
chroot "$root" /bin/sh -c 'PATH=$1; shift; cd "$HOME" && exec "$@"' sh "$path" "$@" || status=$?
# What the line has left in the background is waited for; the shell reaps it while it waits for `sleep`.
while set -- "$root"/proc/[0-9]*; [ $# -gt 1 ]; do sleep 0.02; done
exit "$status"
"""
"""Runs as the first process of the sandbox: when it ends, the kernel kills what is left."""
BUILTINS = (
    "alias|break|case|cd|command|continue|do|done|echo|elif|else|esac|eval|exec|exit|export|false|fi|for|getopts|hash|"
    "if|in|kill|local|printf|pwd|read|readonly|return|set|sh|shift|test|then|times|trap|true|type|ulimit|umask|unset|"
    "until|wait|while|bash"
)
"""Words of a line that are no programs, or whose program is real here."""
PATH = b"/usr/bin:/bin"
NAME = r"(/[\w.+@/-]*[\w+])"
"""An absolute path."""
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


class World(NamedTuple):
    """What a line finds."""

    paths: bool = True
    """Whether the programs and files are there that it names by their paths."""
    words: bool = True
    """Whether the programs are there that are found in PATH."""
    status: int = 0
    """With which status they end."""
    directories: bool = False
    """Whether the directories that it tests are there."""


class Line(NamedTuple):
    """A line as cron runs it."""

    command: bytes
    """As it stands in the crontab."""
    variables: Mapping[bytes, bytes]
    """Of the crontab."""
    user: bytes

    @property
    def text(self) -> str:
        """The command, with the values of the crontab's variables in it, to look for names of programs."""
        text = shell_command(self.command).decode("latin-1")
        for name, value in self.variables.items():
            key = re.escape(name.decode("latin-1"))
            text = re.sub(
                rf"\$(\{{{key}\}}|{key}\b)", lambda _, to=value: to.decode("latin-1"), text
            )
        return text


def worlds(line: Line) -> list[World]:
    """Return all that a line can find: programs that succeed, fail or are missing, with and without directories."""
    found = [World(), World(status=3), World(paths=False), World(paths=False, words=False)]
    if "-d " in line.text or _directories(line.text):
        found.append(World(directories=True))
    return found


class Done(NamedTuple):
    """All that a line has done."""

    status: int
    out: bytes
    err: bytes
    calls: list[bytes]
    """The ledger."""
    files: dict[str, bytes | None]
    """All of the machine; None is a directory."""


def run(line: Line, world: World, state: Path, host: str, *, named: Line | None = None) -> Done:
    """Run a line once, on a new machine with what it or `named` names; `state` is what hosts share."""
    require_root("a machine of stubs (namespaces)")
    root = public_directory("sandbox")
    (ledger := state / "ledger").unlink(missing_ok=True)
    try:
        _build(root, named or line, world)
        environment = _environment(line, host)
        new = ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child"]
        setup = ["--", "/bin/sh", "-euc", SETUP, "sandbox", root, state]
        real = [str(path) for path in _real()]
        command = [environment["SHELL"], "-c", shell_command(line.command)]
        done = subprocess.run(
            [program("unshare"), *new, *setup, *real, "--", *command],
            input=standard_input(line.command), capture_output=True, env=environment, timeout=60, check=False,
        )  # fmt: skip
        if done.stderr.startswith(b"unshare: "):
            not_proven(f"this machine allows no namespaces: {done.stderr.decode()}")
        calls = ledger.read_bytes().splitlines() if ledger.exists() else []
        missing = re.search(rb": not found\n| was not found( in PATH=.*)?\n", done.stderr)
        errors = MISSING if missing else done.stderr
        return Done(done.returncode, done.stdout, errors, calls, _content(root))
    finally:
        remove_directory(root)


def _environment(line: Line, host: str) -> dict[str, str]:
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in line.variables.items()}
    ours = {
        "ONCECRON_STORE": f"sqlite://{OURS}/store.db",
        "ONCECRON_HOST": host,
        "XDG_STATE_HOME": f"{OURS}/{host}",
    }
    by_cron = {"SHELL": "/bin/sh", "PATH": PATH.decode(), "HOME": "/root"}
    by_cron["LOGNAME"] = os.fsdecode(line.user)
    return by_cron | ours | variables


# The machine


@functools.cache
def _real() -> tuple[Path, ...]:
    assert CONSOLE_SCRIPT.is_relative_to(sys.prefix)
    standard = Path(sysconfig.get_path("stdlib"))
    programs = [INTERPRETER, *(Path(shell).resolve() for shell in ("/bin/sh", "/bin/bash"))]
    linked = [*programs, *standard.glob("lib-dynload/*.so")]
    # With `=>` a library that was searched for, without it the loader.
    done = subprocess.run([program("ldd"), *linked], capture_output=True, text=True, check=True)
    libraries = {
        Path(path) for path in re.findall(r"^\t(?:.* => )?(/\S+) \(", done.stdout, re.MULTILINE)
    }
    files = {
        *programs, *_links(Path(sys.executable)), *libraries, standard, Path(sys.prefix),
        Path("/usr/share/zoneinfo"), Path("/etc/localtime"),
    }  # fmt: skip
    return tuple(sorted(path for path in files if path.exists()))


def _links(path: Path) -> list[Path]:
    found = []
    while path.is_symlink():
        path = path.parent / path.readlink()
        found += [] if path.is_relative_to(sys.prefix) else [path]
    return found


def _build(root: Path, line: Line, world: World) -> None:
    for link, target in LINKS.items():
        (root / target).mkdir(parents=True)
        (root / link).symlink_to(target)
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "bin/sh").symlink_to(Path("/bin/sh").resolve())
    for path in _real():
        _place(root, str(path), is_directory=path.is_dir())
    for path in ("/root", "/proc", str(OURS)):
        _place(root, path, is_directory=True)
    for device in ("null", "zero", "urandom"):
        _place(root, f"/dev/{device}")
    _furnish(root, line, world)


def _furnish(root: Path, line: Line, world: World) -> None:
    text = line.text
    tested = _directories(text)
    for path in re.findall(rf"\bcd +[\"']?{NAME}", text):
        _place(root, path, is_directory=True)
    for path in re.findall(rf">\s*{NAME}", text):
        _place(root, str(Path(path).parent), is_directory=True)
    for path in (*tested, f"/root/{PRINTED}") if world.directories else ():
        _place(root, path, is_directory=True)
    if world.paths:
        for path in re.findall(rf"(?:^|[\s;&|{{(])\. +[\"']?{NAME}", text):
            _place(root, path, "READ=1; export READ\n")
        named = re.findall(rf"(?<![\w.}}>]){NAME}", re.sub(r">\s+", ">", text))
        named += ["/".join(pair) for pair in re.findall(rf"\bcd +{NAME} && \./([\w.-]+)", text)]
        _add_stubs(root, world, set(named) - set(tested))
    if world.words:
        first = line.variables.get(b"PATH", PATH).decode().split(":")[0]
        words = set(re.findall(r"(?<![\w/.-])[A-Za-z_][\w.+-]*", text))
        _add_stubs(
            root, world, {f"{first}/{word}" for word in words if not re.fullmatch(BUILTINS, word)}
        )


def _add_stubs(root: Path, world: World, paths: set[str]) -> None:
    for path in sorted(paths):
        _place(root, path, STUB.replace("STATUS", str(world.status)))


def _directories(text: str) -> list[str]:
    tested = re.findall(rf"-([de]) +[\"']?{NAME}", text)
    return [path for letter, path in tested if letter == "d" or path.startswith("/run/")]


def _place(root: Path, path: str, content: str = "", *, is_directory: bool = False) -> None:
    place = root / path.lstrip("/")
    if place.exists() or place.is_symlink():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if is_directory:
        place.mkdir()
        return
    place.write_text(content)
    place.chmod(0o755)


def _content(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else None
        for path in root.rglob("*")
    }
