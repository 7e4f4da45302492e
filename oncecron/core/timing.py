"""The waits and time limits that several modules share or that belong to one protocol, each with its reason.

In seconds, unless the text says otherwise. A fraction is a fraction of the ttl. What one module alone waits for stands
there, with its reason too. The options that a user may set (`--ttl`, `--grace`, ...) have their defaults in the option
table; `--min-gap` has it here, because it depends on the rule of the tick. Limits that a server applies by itself stand
in its SQL and Lua files.
"""

from __future__ import annotations

from oncecron.core.units import DAY

NEVER = float("inf")
"""A deadline that is not set."""
LONGEST_SLEEP = 1.0
"""Timers stop while the machine is suspended, so every wait looks at the clock at least this often."""
POLL_ROUNDING = 0.001
"""poll(2) counts whole milliseconds: a timeout one longer never ends just before the deadline."""

LOOK_EVERY = 1.0
"""Between two looks at the file for a place, and so at least between two messages to the store for a new one."""
LOOK_AGAIN = 0.1
"""Until another look at a file that the job was just writing, else its place would wait for a second more."""

# Which tick

EARLY = 2.0
"""A firing may start this long before its tick, for example when the clock is set back after cron woke up. The
other bound of this rule, a quarter of the interval, is never smaller: crontab ticks are a minute apart."""
DEFAULT_MIN_GAP = 30.0
"""Between two starts when the host's minute is the tick: half a minute separates a late firing from the next one."""
MAX_CLOCK_SKEW = 300.0
"""The largest difference between the host's clock and the store's clock at which a scheduled tick is accepted. An
instant named with `--tick` may be this far ahead of the store's clock."""
NOTABLE_CLOCK_SKEW = 2.0
"""`doctor`, `check` and the live view warn if the clocks of host and store differ by more: NTP keeps them within
milliseconds. Ticks are accepted up to `MAX_CLOCK_SKEW`."""
LONGEST_SCHEDULE_GAP = 50 * 366 * DAY
"""A schedule without a time for this long has none: a 29 February on a given weekday is at most 40 years away."""
QUARTER_YEAR = 91 * DAY
"""Between the instants at which /etc/timezone is compared with /etc/localtime: four of them see both offsets."""

# The lease

MINIMUM_TTL = 6.0
"""With a shorter ttl, heartbeats would come more than once a second."""
LONGEST_TTL = 1.0 * DAY
"""With a longer ttl, a lost host would block its key for days; ten times the ttl is a time limit of PostgreSQL, whose
largest is 24.8 days."""
HEARTBEATS_PER_TTL = 6
"""The lease is renewed this many times in one ttl."""
TRUST_MARGIN = 0.002
"""Trust ends this long before the lease: the resolution of clocks and timers."""
TRUST_MARGIN_PER_TTL = 0.01
"""Trust ends this fraction of the ttl earlier still: two clocks run at different speeds, far less than 1 % apart."""
TERM_BEFORE = 1 / 4
"""The guard sends TERM this long before trust ends (15 s with a ttl of one minute)."""
GUARD_KILLS_BEFORE = 1 / 12
"""The guard sends KILL this long before trust ends (5 s with a ttl of one minute)."""
WRAPPER_KILLS_BEFORE = 1 / 20
"""The wrapper sends KILL this long before trust ends, if a stopped guard did not (3 s with a ttl of one minute)."""
SILENT_FOR = 1 / 3
"""A holder that has not renewed for this long (two heartbeats) may be dead."""
ASSUMED_TTL = 60.0
"""The ttl of a connection without a lease, and of a lease whose ttl is unknown: the default of --ttl."""
ONLY_IF_TIMEOUT = 30.0
"""The limit for the test of --only-if, half a minute: a test that hangs must not meet the next firing. It decides
whether a program or a file is there, which takes milliseconds. A remote file system may take seconds."""

# One call to the store

CALL_TIMEOUT = 5.0
"""The limit for one call of a firing. With a short ttl, one heartbeat interval is the limit."""
READER_TIMEOUT = 10.0
"""The limit for one call of a command that a person waits for. On SQLite: the wait for the locks of firings."""
SKIP_TIMEOUT = 1.0
"""A skipped firing waits this long for the store to record its skip. Nothing depends on that record."""
KEEPALIVE_IDLE = 10
"""TCP keepalive: probes start after this many seconds without traffic (whole seconds, tcp(7))."""
KEEPALIVE_INTERVAL = 5
"""TCP keepalive: between two probes (whole seconds)."""
KEEPALIVE_COUNT = 3
"""TCP keepalive: after this many unanswered probes the connection is dead, 25 s after packets stopped."""
SHORTEST_SERVER_TIMEOUT = 2
"""libpq's smallest connect_timeout (whole seconds); also the smallest TCP_USER_TIMEOUT."""
REPLICA_TIMEOUT = 5.0
"""The limit for replicas to acknowledge a change by a person (`?wait=N`)."""
LONGEST_CONNECT_TIMEOUT = 1.0 * DAY
"""The largest --connect-timeout: far below 24.8 days, the longest wait of poll(2)."""

# The job

FIRST_KILL_PAUSE = 0.002
"""The first pause between two kills: a killed process needs a moment to disappear."""
KILL_TIMEOUT = 5.0
"""After this long the wrapper gives up on a process that cannot be killed."""
OUTPUT_TIMEOUT = 1.0
"""The limit for captured output to arrive, and for a slow reader to take the output of a command that was stopped."""

# Records

RECORD_TIMEOUT = 10.0
"""The limit for all tries to write a record to the store; then the record is spooled."""
BACKLOG_AFTER_END = 1.0
"""A firing that ends delivers other spooled records for at most this long: enough for hundreds, and too short for two
firings of a minutely line to overlap."""
RECORD_GIVE_UP = RECORD_TIMEOUT + CALL_TIMEOUT + BACKLOG_AFTER_END
"""The guard waits this long for its store thread, whose last call may still be running."""
HOST_FORGOTTEN_AFTER = 35 * DAY
"""A host that has not fired a key for this long fires it no more: three ticks of a weekly job, and two weeks more."""

# Commands for people

SETTLED = 60.0
"""After this long the start of a tick is recorded like its skips, in a separate log store too."""
MISSED_AFTER = 600.0
"""A tick that was due this long ago and was not started is missed: cron, a retry of the network and `--wait` are
over. With a longer --starting-deadline, that counts."""
SILENT_AFTER = 900.0
"""A host that has fired none of the last three ticks of a key for this long is silent: a reboot is over by then."""
PAUSES_KEPT = 400.0 * DAY
"""A pause or a drain that is over stays on record for this long, and no older tick is made up: nobody knows then
whether people held it back. It is as long as executions stay by default."""
STOPPED_AFTER = 3600.0
"""All hosts are drained, or all keys paused, for longer than most maintenance takes: somebody may have forgotten it."""
SILENT_WAIT = 2.0
"""A firing at a terminal or with -v says what it waits for after this long: shorter waits are usual."""
LEAST_SILENCE = 3600.0
"""A key without a schedule is not silent before this, however often it usually runs."""
PLAIN_SKIP_WITHIN = 10.0
"""A skip that the store decided within so many seconds of its firing, by the clocks of both, is a plain one."""
PLAIN_SKIP_EARLY = 20.0
"""So many seconds before the time of its tick a plain skip may happen."""
PLAIN_SKIP_LATE = 500.0
"""So many seconds after it: with the others, 19 bits hold the milliseconds."""
SAME_TIME = 2.0
"""`why` does not mention a difference between two clocks, or two steps of one firing, that is smaller than this."""
CLOCK_ROUNDING = 0.001
"""Two times of the log that are closer than this are equal."""
COMPLETION_TIMEOUT = 1.0
"""The limit for shell completion to ask the store: a person waits after a TAB."""
