"""A fork storm that proves when it lived: processes that live for 10 ms each, and never end.

    python3 -S -E storm.py JOURNAL SECONDS

The job itself ignores TERM and waits. Two chains of descendants run away from every look: each link
leaves its session, writes a `beat`, forks the next one and ends. A line's form is `job.py`'s.
"""

import os
import signal
import sys
import time

CHAINS = 2
LIFE = 0.01

journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
until = time.monotonic() + float(sys.argv[2])
host = os.environ.get("ONCECRON_HOST") or os.uname().nodename
run = f"{host}:{os.getpid()}:{time.monotonic():.6f}"
names = ("KEY", "SHARD", "TICK", "ATTEMPT", "FENCING_TOKEN")
identity = " ".join(os.environ.get(f"ONCECRON_{name}") or "-" for name in names)


def write(kind: str, detail: str = "-") -> None:
    line = f"{kind} {host} {os.getpid()} {time.monotonic():.6f} {run} {identity} {detail}\n"
    os.write(journal, line.encode())


signal.signal(signal.SIGTERM, signal.SIG_IGN)
write("start", "job")
for _ in range(CHAINS):
    if os.fork() == 0:
        write("start", "storm")
        while time.monotonic() < until:
            if os.fork():
                os._exit(0)
            os.setsid()
            write("beat")
            time.sleep(LIFE)
        os._exit(0)
while time.monotonic() < until:
    time.sleep(1)
