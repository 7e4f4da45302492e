"""Terminals: of a command, and of bash and zsh in which somebody presses TAB; fish answers a question of its own."""

import contextlib
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from servers.oncecron import CONSOLE_SCRIPT, Firing, Oncecron
from servers.process import end, spawn
from servers.require import program

_PATIENCE = 60.0  # seconds for a shell on a busy machine
_SHOW = "\x18s"  # Ctrl-X s
_ALL = "\x18a"  # Ctrl-X a
_CLEAR = "\x05\x15"  # Ctrl-E Ctrl-U
_COMMANDS = {"bash": ("bash", "--norc", "--noprofile", "-i"), "zsh": ("zsh", "-f", "-i")}
# Each gets a key that inserts all that is offered, and one that prints the line. The marks are put together from two
# parts, so that the echo of these commands is none.
_SETUP = {
    "bash": r"""
        PS1= PS2=
        bind 'set bell-style none'
        bind 'set enable-bracketed-paste off'
        bind '"\C-xa": insert-completions'
        bind -x '"\C-xs": printf "<%s:%s>" line "$READLINE_LINE"'
        """,
    "zsh": r"""
        PS1= PS2=
        unsetopt beep prompt_cr prompt_sp
        autoload -Uz compinit
        compinit -D -u
        bindkey -e
        zstyle ':completion:all:*' completer _all_matches _complete
        zstyle ':completion:all:*' insert true
        zle -C all complete-word _generic
        bindkey '^Xa' all
        show() print -rn -- '<'line:$BUFFER'>'
        zle -N show
        bindkey '^Xs' show
        bindkey '^U' kill-whole-line
        """,
}


class Terminal:
    """bash or zsh at its prompt."""

    def __init__(self, shell: str, descriptor: int, setup: str) -> None:
        """Wait for the prompt behind the commands of `setup`."""
        self.shown = ""
        """All that is on the screen."""
        self._descriptor = descriptor
        self._read = 0
        self._type(f"{_SETUP[shell]}\n{setup}\nprintf '<%s>' ready\n")
        self._until("<ready>")

    def after_tab(self, line: str) -> str:
        return self._typed(line + "\t")

    def offered(self, line: str) -> list[str]:
        """Return what is offered for the last word of a line, sorted; nothing where it stays as it was."""
        found = self._typed(line + _ALL)
        return [] if found == line else sorted(found.removeprefix(line.rpartition(" ")[0]).split())

    def _typed(self, keys: str) -> str:
        self._type(keys + _SHOW)
        self._until("<line:")
        line = self._until(">")
        self._type(_CLEAR)
        return line

    def _type(self, keys: str) -> None:
        left = keys.encode()
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _until(self, mark: str) -> str:
        deadline = time.monotonic() + _PATIENCE
        while mark not in self.shown[self._read :]:
            left = max(0.0, deadline - time.monotonic())
            assert select.select([self._descriptor], (), (), left)[0], (mark, self.shown)
            self.shown += os.read(self._descriptor, 65536).decode(errors="replace")
        begin, self._read = self._read, self.shown.index(mark, self._read) + len(mark)
        return self.shown[begin : self._read - len(mark)]


@contextmanager
def terminal(shell: str, setup: str, environment: Mapping[str, str]) -> Iterator[Terminal]:
    name, *options = _COMMANDS[shell]
    ours, its = pty.openpty()
    # So that no line is wrapped, and nothing asked before a list.
    termios.tcsetwinsize(its, (500, 500))
    # Who leads a session gets the first terminal that it opens.
    opening = ["/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&1', os.ttyname(its)]
    process = spawn([*opening, program(name), *options], env={**environment, "TERM": "dumb"})
    try:
        yield Terminal(shell, ours, setup)
    finally:
        os.close(ours)
        os.close(its)
        end(process)


def _written_on(terminal: int) -> str:
    """Return all that is written on a terminal until everybody has closed it; close our side."""
    seen = b""
    with contextlib.suppress(OSError):  # EIO: everybody has closed it
        while block := os.read(terminal, 65536):
            seen += block
    os.close(terminal)
    return seen.decode().replace("\r\n", "\n")


def on_a_terminal(
    host: Oncecron, *arguments: object, lines: int = 24, **environment: str
) -> tuple[str, str]:
    """Return what a command writes on a terminal of 100 columns, and beside it."""
    ours, theirs = pty.openpty()
    size = ["cols", "100", "rows", str(lines)]
    subprocess.run(["stty", *size], stdin=theirs, check=True)
    process = subprocess.Popen(
        [CONSOLE_SCRIPT, *map(str, arguments)],
        env={**host.environment, "TERM": "xterm", **environment},
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(theirs)
    seen = _written_on(ours)
    _, err = process.communicate(timeout=30)
    return seen, err.decode()


class Watched:
    """A command whose standard error is a terminal."""

    def __init__(self, firing: Firing, descriptor: int) -> None:
        self.firing = firing
        self.shown = ""
        self._descriptor = descriptor
        self._began = time.monotonic()

    def until(self, words: str, deadline: float = 30) -> float:
        """Wait until these words are on the screen; return after how many seconds."""
        while words not in self.shown:
            left = self._began + deadline - time.monotonic()
            assert left > 0, self.shown
            assert select.select([self._descriptor], (), (), left)[0], self.shown
            self.shown += os.read(self._descriptor, 65536).decode()
        return time.monotonic() - self._began

    def wait(self) -> int:
        """Wait for the end; return the exit status."""
        return self.firing.process.wait(60)

    def screen(self) -> list[str]:
        """Wait for the end; return the lines that are left on the screen, the last one with the cursor."""
        with contextlib.suppress(OSError):  # EIO: everybody has closed it
            while block := os.read(self._descriptor, 65536):
                self.shown += block.decode()
        return [_overwritten(line) for line in self.shown.replace("\r\n", "\n").split("\n")]


@contextmanager
def watched(host: Oncecron, *words: object) -> Iterator[Watched]:
    """Start a command in front of somebody; it is ended after the block."""
    ours, its = pty.openpty()
    firing = host.start(*words, stderr=its)
    os.close(its)
    try:
        yield Watched(firing, ours)
    finally:
        end(firing.process)
        os.close(ours)


def _overwritten(line: str) -> str:
    seen = ""
    for text in line.split("\r"):
        seen = text + seen[len(text) :]
    return seen.rstrip()


class Screen:
    """A shell in a terminal of tmux, with as many columns as a test wants."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        """`directory`: for the socket of a tmux of its own, by which alone it is ended."""
        self._directory = directory
        self._environment = {**environment, "TERM": "xterm", "PS1": "$ "}

    def __enter__(self) -> Self:
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "bash --norc")
        return self

    def __exit__(self, *_error: object) -> None:
        self.tmux("kill-server")

    def tmux(self, *arguments: object) -> str:
        """Let tmux carry out a command; return what it prints."""
        command = [program("tmux"), "-S", "tmux", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self._directory, env=self._environment, capture_output=True, check=True, timeout=_PATIENCE,
        )  # fmt: skip
        return done.stdout.decode()

    def resize(self, columns: int, lines: int = 50) -> None:
        self.tmux("resize-window", "-x", columns, "-y", lines)

    def type(self, line: str) -> None:
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def lines(self, *, joined: bool = False) -> list[str]:
        """Return what is on the screen now; `joined`: a line that the terminal has wrapped is one."""
        shown = self.tmux("capture-pane", "-p", *(["-J"] if joined else []))
        return [line.rstrip() for line in shown.rstrip().split("\n")]

    def after(self, command: str, columns: int) -> list[str]:
        """Return what a command shows, which must not be wrapped."""
        self.resize(columns, 120)
        done = f"tmux -S {self._directory}/tmux wait-for -S done"
        self.tmux("respawn-pane", "-k", "-c", self._directory, f"{command}; {done}; exec sleep 60")
        self.tmux("wait-for", "done")
        lines = self.lines()
        wrapped = [line for line in self.lines(joined=True) if line not in lines]
        assert [line for line in wrapped if "`" not in line] == [], command  # that can be pasted
        return lines


def answered(host: Oncecron, *arguments: object, answers: str) -> tuple[int | None, str]:
    """Return the status of a command at a terminal where somebody types lines, and what it shows there."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [CONSOLE_SCRIPT, *map(str, arguments)],
        env={**host.environment, "TERM": "dumb"}, stdin=its, stdout=its, stderr=its,
    )  # fmt: skip
    os.close(its)
    os.write(ours, answers.encode())
    shown = _written_on(ours)
    return process.wait(30), shown
