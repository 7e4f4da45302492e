"""A job that proves when it lived, from what it wrote itself. Standard library only, fast to start.

    python3 -S -E job.py JOURNAL [options]

Each line of the journal is one write with O_APPEND, its fields separated by blanks:

    kind host pid time run key shard tick attempt token detail

kind: start, beat, signal, end. time: CLOCK_MONOTONIC in seconds, the same clock on all "hosts" of
this machine. run: names this start of the job and is inherited by what it leaves behind. detail:
the exit status of an end, the name of a signal, the role of a process at its start.
start and end are on the disk before the program goes on.

    --sleep SECONDS       live for so long (default 0)
    --until FILE          end before that, as soon as this file is there
    --exit STATUS         exit status (default 0)
    --kill-self SIGNAL    end by this signal instead
    --ignore-term         record TERM, INT, HUP and QUIT, and live on
    --beats               a line each 20 ms, so that life up to a kill is proved too
    --fork                leave a double-forked survivor, which beats until it is killed
    --setsid-grandchild   start a grandchild in a session of its own, which beats likewise
    --ready               print `ready` as soon as signals are recorded
    --survive SECONDS     the longest life of survivor and grandchild (default 60)

Every signal that is recorded is also printed, one name a line.
"""

import os
import select
import signal
import sys
import time

RECORDED = {"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "CONT", "WINCH", "ALRM"}
ENDING = {"TERM", "INT", "HUP", "QUIT"}
BEAT = 0.02
FLAGS = {"--ignore-term", "--beats", "--fork", "--setsid-grandchild", "--ready"}
VALUES = {"--sleep": "0", "--until": "", "--exit": "0", "--kill-self": "", "--survive": "60"}


class Job:
    """One process of the job, with its line in the journal."""

    def __init__(self, path: str) -> None:
        self.journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        get = os.environ.get
        self.host = get("ONCECRON_HOST") or os.uname().nodename
        self.run = f"{self.host}:{os.getpid()}:{time.monotonic():.6f}"
        names = ("KEY", "SHARD", "TICK", "ATTEMPT", "FENCING_TOKEN")
        self.identity = " ".join(get(f"ONCECRON_{name}") or "-" for name in names)

    def write(self, kind: str, detail: object = "-") -> None:
        line = f"{kind} {self.host} {os.getpid()} {time.monotonic():.6f} {self.run}"
        os.write(self.journal, f"{line} {self.identity} {detail}\n".encode())
        if kind in ("start", "end"):
            try:  # noqa: SIM105 - as below
                os.fsync(self.journal)
            except OSError:  # refused in a sandbox
                pass

    def record_signals(self) -> None:
        """Let every signal arrive in a pipe of this process's own.

        Not sigtimedwait: after SIGSTOP and SIGCONT CPython's may return an uninitialised answer.
        """
        self.arrived, sink = os.pipe()
        os.set_blocking(sink, False)
        signal.set_wakeup_fd(sink)
        for name in RECORDED:
            signal.signal(getattr(signal, "SIG" + name), lambda *_: None)

    def live(self, seconds: float, beats: bool, ignore: bool, until: str = "") -> str | None:
        """Live and record signals; return the name of the signal that asked for the end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not (until and os.path.exists(until)):
            if beats:
                self.write("beat")
            pause = min(left, BEAT) if beats or until else left
            if not select.select([self.arrived], [], [], pause)[0]:
                continue
            for number in os.read(self.arrived, 64):
                name = signal.Signals(number).name.removeprefix("SIG")
                self.write("signal", name)
                say(name)
                if name in ENDING and not ignore:
                    return name
        return None

    def leave_behind(self, role: str, seconds: float) -> None:
        """Fork a process that beats on, out of reach of our process group if `role` is grandchild.

        A survivor's parent ends at once, so that it belongs to whoever adopts orphans. Its start is written before the
        job goes on, which may end soon.
        """
        written, write = os.pipe()
        if os.fork() == 0:
            if role == "grandchild":
                os.setsid()
            if os.fork() == 0:
                self.record_signals()
                self.write("start", role)
                os.write(write, b"x")
                self.live(seconds, beats=True, ignore=True)
                self.write("end", role)
                os._exit(0)
            if role == "grandchild":
                os.wait()
            os._exit(0)
        os.close(write)
        os.read(written, 1)
        os.close(written)
        if role == "survivor":
            os.wait()


def say(word: str) -> None:
    """Print a line at once; a reader that is gone is no reason to die."""
    try:  # noqa: SIM105 - contextlib would be one import more at every start
        os.write(1, f"{word}\n".encode())
    except OSError:
        pass


def die_by(name: str) -> None:
    """End by a signal as if it had never been handled."""
    number = getattr(signal, "SIG" + name)
    if name != "KILL":
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main() -> None:
    path, *words = sys.argv[1:]  # argparse alone would double the start-up time
    flags = FLAGS.intersection(words)
    words = [word for word in words if word not in flags]
    values = VALUES | dict(zip(words[::2], words[1::2], strict=True))
    if unknown := values.keys() - VALUES:
        sys.exit(f"job.py: unknown option {unknown}")
    job = Job(path)
    job.record_signals()
    job.write("start", "job")
    for flag, role in (("--fork", "survivor"), ("--setsid-grandchild", "grandchild")):
        if flag in flags:
            job.leave_behind(role, float(values["--survive"]))
    if "--ready" in flags:
        say("ready")
    seconds, beats = float(values["--sleep"]), "--beats" in flags
    name = job.live(seconds, beats, "--ignore-term" in flags, values["--until"])
    name = name or values["--kill-self"]
    job.write("end", name or values["--exit"])
    if name:
        die_by(name)
    os._exit(int(values["--exit"]))


main()
