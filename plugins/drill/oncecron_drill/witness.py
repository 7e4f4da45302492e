"""A job that bears witness of its whole tree. Standard library only, fast to start.

    python3 -S -E witness.py JOURNAL [options]

Each start writes a file of its own, JOURNAL/KEY/SHARD-HOST-PID-TIME, one JSON object a line; history.py says what
it means. All that descends from the job inherits the file and with it the lock on it (flock), so the kernel frees
that lock when the last of them is dead, and not a moment before. At its start the job tries the locks of all other
files of its key and shard: one that is taken is another tree that lives, written down as `overlap`. Of two that
start together at least one sees the other, since each takes its own lock before it looks.

Times are CLOCK_MONOTONIC, the same in all namespaces. The start, an overlap and the end are on the disk before the
program goes on. Every process of the tree writes a `beat` ten times a second.

    --seconds S      live for so long (default 0.1)
    --exit STATUS    exit status (default 0)
    --fail-before N  exit status 9 in the attempts before the Nth
    --ignore-term    write down TERM, INT, HUP and QUIT, and live on
    --fork           leave a double-forked child, which lives until it is killed, or the job has succeeded
    --setsid         leave a grandchild in a session of its own, likewise
    --daemon S       leave a daemon that outlives a successful job by so long; it drops the lock before that job ends
    --output BYTES   write so much to standard output
    --fenced WORDS   a command, with | for blanks, that writes under KEY and TOKEN, run five times a second
"""

import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
import time

BEAT = 0.1
FENCED_EACH = 0.2
ENDING = {"TERM", "INT", "HUP", "QUIT"}
LONGEST_LIFE = 20.0
OPTIONS = {
    "--seconds": "0.1", "--exit": "0", "--fail-before": "0", "--daemon": "0", "--output": "0", "--fenced": "",
}  # fmt: skip


class Witness:
    """The file, and what is written into it."""

    def __init__(self, journal: str) -> None:
        get = os.environ.get
        self.key, self.token = get("ONCECRON_KEY") or "-", get("ONCECRON_FENCING_TOKEN")
        shard = get("ONCECRON_SHARD")
        self.directory = os.path.join(journal, self.key)
        os.makedirs(self.directory, exist_ok=True)
        self.group = f"{shard or '-'}-"
        self.name = f"{self.group}{os.uname().nodename}-{os.getpid()}-{time.monotonic():.6f}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self.file = os.open(os.path.join(self.directory, self.name), flags, 0o666)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        os.set_inheritable(self.file, True)
        numbers = {
            "firing": get("WITNESS_FIRING"),
            "attempt": get("ONCECRON_ATTEMPT"),
            "token": self.token,
            "execution_id": get("ONCECRON_EXECUTION_ID"),
        }
        texts = {
            "host": get("WITNESS_HOST"),
            "key": self.key,
            "shard": shard,
            "tick": get("ONCECRON_TICK"),
        }
        members = [f'"{name}": {value or "null"}' for name, value in numbers.items()]
        members += [
            f'"{name}": "{value}"' if value else f'"{name}": null' for name, value in texts.items()
        ]
        self.write("start", *members, sync=True)

    def write(self, event: str, *members: str, sync: bool = False) -> None:
        """Append one line."""
        head = f'"event": "{event}", "at": {time.monotonic():.6f}, "pid": {os.getpid()}'
        os.write(self.file, ("{" + ", ".join((head, *members)) + "}\n").encode())
        if sync:
            os.fsync(self.file)

    def look_for_others(self) -> None:
        """Write down whose lock is taken."""
        for name in os.listdir(self.directory):
            if name == self.name or not name.startswith(self.group):
                continue
            other = os.open(os.path.join(self.directory, name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                self.write("overlap", f'"with": "{name}"', sync=True)
            os.close(other)


def record_signals() -> int:
    """Let every signal arrive in a pipe of this process's own; return its end."""
    arrived, sink = os.pipe()
    os.set_blocking(sink, False)
    signal.set_wakeup_fd(sink)
    for name in ENDING:
        signal.signal(getattr(signal, "SIG" + name), lambda *_: None)
    return arrived


def live(witness: Witness, seconds: float, ignore: bool, fenced: list[str]) -> str | None:
    """Live, beat and write under the token; return the name of the signal that asked for the end."""
    arrived = record_signals()
    end = time.monotonic() + seconds
    fence_at = time.monotonic()
    while (left := end - time.monotonic()) > 0:
        witness.write("beat")
        if fenced and time.monotonic() >= fence_at:
            fence_at = time.monotonic() + FENCED_EACH
            write_fenced(witness, fenced)
        if not select.select([arrived], [], [], min(left, BEAT))[0]:
            continue
        for number in os.read(arrived, 64):
            name = signal.Signals(number).name.removeprefix("SIG")
            witness.write("signal", f'"name": "{name}"')
            if not ignore:
                return name
    return None


def write_fenced(witness: Witness, command: list[str]) -> None:
    """Write once where the fencing token is checked."""
    words = [*command, witness.key, witness.token or "0"]
    done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode in (0, 1):  # else it could not ask
        witness.write("fenced", f'"accepted": {"true" if done.returncode == 0 else "false"}')


class Descendants:
    """What the job leaves behind: part of its tree until a successful job has told it otherwise, and each has obeyed.

    One that only loses the job, since that was killed, lives on.
    """

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.told, self.tell = os.pipe()
        self.obeyed, self.obey = os.pipe()
        self.count = 0

    def fork(self, own_session: bool, seconds: float) -> None:
        """Fork one that nobody in the tree waits for; a daemon lives on for so long after a success."""
        self.count += 1
        if os.fork():
            if not own_session:
                os.wait()
            return
        if own_session:
            os.setsid()
        if os.fork() == 0:
            self._live(seconds)
            os._exit(0)
        if own_session and not seconds:
            os.wait()
        os._exit(0)

    def _live(self, seconds: float) -> None:
        os.close(self.tell)
        record_signals()
        end = time.monotonic() + LONGEST_LIFE
        watched = [self.told]
        while time.monotonic() < end:
            self.witness.write("beat")
            if not select.select(watched, [], [], BEAT)[0]:
                continue
            if os.read(self.told, 1):
                break
            watched = []  # the job is gone without a word
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.close(self.witness.file)
        os.write(self.obey, b"x")
        time.sleep(seconds)  # what a daemon is left behind for

    def let_go(self) -> None:
        """Tell all that the job has succeeded, and wait until they are no longer part of its tree."""
        os.write(self.tell, b"x" * self.count)
        for _ in range(self.count):
            os.read(self.obeyed, 1)


def flood(count: int) -> None:
    """Write to standard output; a reader that is gone is no reason to die."""
    line = b"x" * 99 + b"\n"
    try:
        for _ in range(count // len(line)):
            os.write(1, line)
    except OSError:
        return


def main() -> None:
    """Run the job."""
    _, room = resource.getrlimit(resource.RLIMIT_FSIZE)  # a full disk is not the ledger's
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    path, *words = sys.argv[1:]  # argparse alone would double the start-up time
    flags = {"--ignore-term", "--fork", "--setsid"}.intersection(words)
    words = [word for word in words if word not in flags]
    values = OPTIONS | dict(zip(words[::2], words[1::2], strict=True))
    witness = Witness(path)
    witness.look_for_others()
    descendants = Descendants(witness)
    for flag in ("--fork", "--setsid"):
        if flag in flags:
            descendants.fork(own_session=flag == "--setsid", seconds=0)
    if values["--daemon"] != "0":
        descendants.fork(own_session=True, seconds=float(values["--daemon"]))
    flood(int(values["--output"]))
    fenced = [word for word in values["--fenced"].split("|") if word]
    name = live(witness, float(values["--seconds"]), "--ignore-term" in flags, fenced)
    fails = int(os.environ.get("ONCECRON_ATTEMPT") or 1) < int(values["--fail-before"])
    own = 9 if fails else int(values["--exit"])
    status = 128 + getattr(signal, "SIG" + name) if name else own
    if not status:
        descendants.let_go()
    witness.write("end", f'"status": {status}', sync=True)
    if name:
        number = getattr(signal, "SIG" + name)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(status)


if __name__ == "__main__":
    main()
