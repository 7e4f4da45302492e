"""Every wait and every limit in time of the product, with its reason. In seconds, unless the text says otherwise.

What a user may choose (`--ttl`, `--grace`, `--connect-timeout`, ...) has its default in the table of options. A
fraction is of the ttl. SQL and Lua get theirs as arguments.
"""

from __future__ import annotations

NEVER = float("inf")
"""A deadline that is not set."""

LONGEST_SLEEP = 1.0
"""A timer stands still while the machine is suspended, so whoever waits looks at the clock as often as this."""

# Which tick

EARLY = 2.0
"""A firing may come this long before its time, as when the clock was stepped back after cron woke.

The rule's other bound, a quarter of the interval, is never less: crontab ticks are a minute apart.
"""

DEFAULT_MIN_GAP = 30.0
"""Between two starts where the host's minute names the tick: half a minute tells a late firing from the next."""

MAX_CLOCK_SKEW = 300.0
"""A host's clock may be off the store's by so much before a scheduled tick is refused, and a named instant be ahead."""

# The lease

MINIMUM_TTL = 6.0
"""Below it a heartbeat would come more than once a second."""

HEARTBEATS_PER_TTL = 6
"""A lease is renewed this many times before it could expire."""

TERM_BEFORE = 1 / 4
"""Before the end of trust the guard sends TERM (15 s of a minute)."""

GUARD_KILLS_BEFORE = 1 / 12
"""Before the end of trust the guard kills (5 s of a minute)."""

WRAPPER_KILLS_BEFORE = 1 / 20
"""Before the end of trust the wrapper kills what a stopped guard did not (3 s of a minute)."""

SILENT_FOR = 1 / 3
"""A holder that has not renewed for so long, two heartbeats, may be dead."""

ASSUMED_TTL = 60.0
"""For a connection without a lease, and for a lease whose ttl is not known: the default of --ttl."""

# One call to the store

CALL_TIMEOUT = 5.0
"""One call of a firing, at most; a heartbeat's interval with a short ttl."""

INSPECTOR_TIMEOUT = 10.0
"""One call of a person, who waits in front of it; on SQLite this is the wait for the locks of firings."""

SKIP_LOCK_TIMEOUT = 1.0
"""A loser waits no longer for the locks of others to record its skip, which nobody needs to have."""

SQLITE_RETRY_PAUSE = 0.01
"""Between two tries of the one statement for which SQLite does not wait by itself."""

SESSION_LOCK_FREED_AFTER = 1.0
"""In which the PostgreSQL session of a client that has just ended gives its lock back."""

TERMINATED_AFTER = 5.0
"""In which a PostgreSQL session that was terminated ends."""

REPLICA_TIMEOUT = 5.0
"""For the replicas to acknowledge what a person changes (`?wait=N`)."""

# Claiming

CONTENDED_FOR = 2.0
"""After so long without the session lock the row lock of the key decides alone."""

NOTIFY_SPREAD = 0.5
"""Those who wait for a key ask at a random moment within it, not all at once when its lease is released."""

FIRST_POLL = 1.0
"""The first look at a key that is waited for, where no notification comes; then ever later."""

LONGEST_POLL = 5.0
"""The latest look, likewise."""

ABANDON_TIMEOUT = 5.0
"""For a claim to be answered after the firing was told to end."""

# The job

LISTEN_AFTER = 1.0
"""A job runs for so long before its holder listens for requests: short jobs pay nothing for it."""

FIRST_KILL_PAUSE = 0.002
"""Between two kills, growing: a killed process needs a moment to leave."""

LONGEST_KILL_PAUSE = 0.5
"""The longest pause between two kills."""

KILL_TIMEOUT = 5.0
"""Until the wrapper gives up a process that cannot be killed."""

GUARD_LEAVES_WITHIN = 1.0
"""For the guard to leave after its last word."""

OUTPUT_TIMEOUT = 1.0
"""For output on its way: from a forwarder, or from a command that was told to end to a slow reader."""

# Records

RECORD_TIMEOUT = 10.0
"""For a record to reach the store, tried again and again; then it is spooled."""

RECORD_GIVE_UP = RECORD_TIMEOUT + CALL_TIMEOUT
"""After which the guard waits no longer for its store thread, whose last call may still be under way."""

SPOOL_WRITE_TIMEOUT = 5.0
"""A temporary file of the spool that is older was left by a process that was killed."""

LOG_GOODBYE = 2.0
"""A firing waits so long for the log beside the store at its end: enough to connect to a distant server and to ask it,
too short for two firings of a minutely line to meet."""

LOG_BACKLOG = LOG_GOODBYE / 2
"""Of these, for what was spooled earlier: the rest is for this firing's own record."""

LOG_RECORD_TIMEOUT = 5.0
"""For one record to reach the log beside the store."""

LOG_IDLE = 10.0
"""After which the connection to the log is given back: the job may run for hours."""

LOG_LONGEST_PAUSE = 30.0
"""Between two tries to reach the log while the job runs."""

LOG_LAST_PAUSE = 0.2
"""Between two tries to reach the log while somebody waits for the firing."""

# What people ask

LOG_CATCHES_UP = 5.0
"""`audit` waits so long for the log beside the store, which firings tell for `LOG_GOODBYE` before they spool."""

SETTLED = 60.0
"""After which the start of a tick is recorded beside its skips, also in a log beside the store."""

ONE_STEP = 0.5
"""A loss and the start that found it are one step, but may be two looks at the clock of a store."""

CLOCK_ROUNDING = 0.001
"""Two times of the log that are nearer are one."""

COMPLETION_TIMEOUT = 1.0
"""For a TAB to be answered: nobody waits longer for a store."""

FOLLOW_POLL = 1.0
"""Between two looks of `history --follow`."""

REQUEST_POLL = 0.5
"""Between two looks of `stop` and `release`, with jitter: nothing notifies people."""

ASSUMED_GRACE = 10.0
"""`stop` waits so long for a job to end whose own --grace it does not know: the default of that option."""

STOP_MARGIN = 10.0
"""In which a living holder acknowledges a stop, and a look sees it."""

RELEASE_MARGIN = 5.0
"""In which a living holder acknowledges a release, and a look sees it."""

TAKEOVER_WITHIN = 3.0
"""After the end of a lease a standby begins within it."""
