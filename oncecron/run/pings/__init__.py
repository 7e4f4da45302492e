"""Ping monitoring services when a job starts and when it ends (`[[ping]]`).

- The wrapper forks one process for all pings of the firing, before it forks the guard (`pinger`). It is no child of the
  wrapper, so the end of wrapper, guard or job neither waits for it nor ends it.
- Guard and wrapper append events to memory that this process reads. They never wait for it.
- The process sleeps until the first event (`delivery`). It decides which events are pings, and exits when wrapper and
  guard have exited and the last ping has been sent. A firing that starts nothing sends nothing.
- Each service has a thread (`channel`), so one that hangs does not delay another. A ping has two tries of five seconds.
- A ping that fails is reported in the system log, and with -v on standard error. It changes nothing else.

No URL is in the arguments of any process, because this one only forks.
"""
