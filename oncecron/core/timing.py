"""Every wait and every time limit of the product, with its reason.

In seconds, unless the text says otherwise. A fraction is a fraction of the ttl. The options that a user may set
(`--ttl`, `--grace`, `--connect-timeout`, ...) have their defaults in the option table. The default of `--min-gap` is
here, because it depends on the rule of the tick, and so are those of [retention], which no firing has options for.
Limits that a server applies by itself stand in its SQL and Lua files.
"""

from __future__ import annotations

from oncecron.core.units import DAY, HOUR

NEVER = float("inf")
"""A deadline that is not set."""
LONGEST_SLEEP = 1.0
"""Timers stop while the machine is suspended, so every wait looks at the clock at least this often."""
POLL_ROUNDING = 0.001
"""poll(2) counts whole milliseconds: a timeout one longer never ends just before the deadline."""

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
FALSE_TIME_AGO = 1.0 * DAY
"""A time that only a wrong clock can have written counts as one so long ago. That is longer than a scheduled
firing is usually late, and not longer than the log keeps executions, whose ticks are `done`."""
TOKEN_AHEAD = 1.0 * DAY
"""A fencing token that a record or a re-adoption brings counts up to this far ahead of the store's clock. Tokens
are the store's clock in microseconds, or the last one plus one. With `--log` they are another store's."""
CRON_CORRECTION = 3 * 3600
"""Debian's cron takes a jump forward by this much, or back by more, for a corrected clock, not for summer time."""
LONGEST_SCHEDULE_GAP = 50 * 366 * DAY
"""A schedule without a time for this long has none: a 29 February on a given weekday is at most 40 years away."""
QUARTER_YEAR = 91 * DAY
"""Between the instants at which /etc/timezone is compared with /etc/localtime: four of them see both offsets."""
ZONE_CHANGES_WITHIN = 400 * DAY
"""A zone whose offset changes at all changes it twice within this time."""
OLDEST_PROCESS = 3600.0
"""A process older than this did not just start: its start time is wrong, and the present time is used."""


# The lease

MOST_TAKEOVERS = 1000
"""How often the firings of `each` that wait take over a slot of one tick."""
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

# Before the claim

ONLY_IF_TIMEOUT = 30.0
"""The limit for the test of --only-if, half a minute: a test that hangs must not meet the next firing. It decides
whether a program or a file is there, which takes milliseconds. A remote file system may take seconds."""

# One call to the store

CALL_TIMEOUT = 5.0
"""The limit for one call of a firing. With a short ttl, one heartbeat interval is the limit."""
READER_TIMEOUT = 10.0
"""The limit for one call of a command that a person waits for. On SQLite: the wait for the locks of firings."""
LONGEST_QUERY = 600.0
"""The limit for one statement of such a command on PostgreSQL, which may read and sort a long log."""
MOST_CPU_OF_ANSWER = 5.0
"""And for reading what its server sends, in CPU time: libpq looks a setting up among all that it was sent."""
SKIP_TIMEOUT = 1.0
"""A skipped firing waits this long for the store to record its skip. Nothing depends on that record."""
SQLITE_RETRY_PAUSE = 0.01
"""Between two tries of the one statement for which SQLite itself does not wait."""
KEEPALIVE_IDLE = 10
"""TCP keepalive: probes start after this many seconds without traffic (whole seconds, tcp(7))."""
KEEPALIVE_INTERVAL = 5
"""TCP keepalive: between two probes (whole seconds)."""
KEEPALIVE_COUNT = 3
"""TCP keepalive: after this many unanswered probes the connection is dead, 25 s after packets stopped."""
SHORTEST_SERVER_TIMEOUT = 2
"""libpq's smallest connect_timeout (whole seconds); also the smallest TCP_USER_TIMEOUT."""
SESSION_LOCK_FREED_AFTER = 1.0
"""A PostgreSQL session whose client has ended frees its lock within this time."""
TERMINATED_AFTER = 5.0
"""A PostgreSQL session that was terminated ends within this time."""
RELEASE_POLL = 0.05
"""Between two tries of `release --force` while a terminated session ends, and of a pause while a write is under way."""
REPLICA_TIMEOUT = 5.0
"""The limit for replicas to acknowledge a change by a person (`?wait=N`)."""

# Retrying a call, and claiming

LONGEST_CONNECT_TIMEOUT = 1.0 * DAY
"""The largest --connect-timeout: far below 24.8 days, the longest wait of poll(2)."""
FIRST_BACKOFF = 0.05
"""The first upper bound of the delay before a call is retried; it doubles each time, with full jitter."""
LONGEST_BACKOFF = 2.0
"""The largest upper bound of that delay."""
RENEW_PAUSE = 0.01
"""Added to the delay before a failed renewal is retried: full jitter may give 0."""
LONGEST_RENEW_PAUSE = 1 / 4
"""The largest upper bound of the delay before a renewal is retried, as a fraction of the heartbeat interval."""
SHORTEST_RENEW_PAUSE = 0.2
"""That bound is never smaller than this."""
CONTENDED_FOR = 2.0
"""After this long without the session lock, the row lock of the key decides alone."""
CONTENDED_PAUSE = 0.05
"""After meeting another firing in the middle of its claim or end: both last for some milliseconds."""
NOTIFY_SPREAD = 0.5
"""After a notification, waiting firings claim at random moments within this time, not all at once."""
RECHECK_SPREAD = 0.25
"""The same for firings that wait until an old lease ends: they must not start much later than they could."""
WAIT_OVERRUN = 0.05
"""The last claim of --wait comes this long after the wait has ended, so that it is the last one."""
FIRST_POLL = 1.0
"""Without notifications, a waiting firing polls for the first time after this long."""
POLL_GROWTH = 1.5
"""Each later pause is longer by this factor."""
LONGEST_POLL = 5.0
"""The longest pause between two polls."""
ABANDON_TIMEOUT = 5.0
"""After a signal to stop, the firing waits this long for the answer to its claim."""

# The job

LISTEN_AFTER = 1.0
"""The holder listens for requests after the job has run for this long, so that short jobs do not pay for it."""
FIRST_KILL_PAUSE = 0.002
"""The first pause between two kills: a killed process needs a moment to disappear."""
KILL_PAUSE_GROWTH = 1.5
"""Each later pause between two kills is longer by this factor."""
LONGEST_KILL_PAUSE = 0.5
"""The longest pause between two kills."""
KILL_TIMEOUT = 5.0
"""After this long the wrapper gives up on a process that cannot be killed."""
GUARD_LEAVES_WITHIN = 1.0
"""The wrapper waits this long for the guard to exit after its last report."""
OUTPUT_TIMEOUT = 1.0
"""The limit for captured output to arrive, and for a slow reader to take the output of a command that was stopped."""

# Pings

PING_TIMEOUT = 5.0
"""The limit for one try of a ping, from the look-up of the name to the answer: also of `ping_url` of [notify]."""
PING_PAUSE = 1.0
"""The pause before the second try of a ping: enough for a restart of the server's workers."""
PINGS_END_WITHIN = 3 * PING_TIMEOUT + 2 * PING_PAUSE
"""Within this time after the job the last ping has been sent or given up: one try of the start, two of the end."""

# Records

RECORD_TIMEOUT = 10.0
"""The limit for all tries to write a record to the store; then the record is spooled."""
SPOOL_WRITE_TIMEOUT = 5.0
"""An older temporary file in the spool is left over from a killed process."""
BACKLOG_BEFORE_CLAIM = 5.0
"""Before its claim a firing delivers spooled ends for at most this long, and for half of --connect-timeout at most:
a tick that is claimed late may be overtaken by the next one."""
BACKLOG_AFTER_END = 1.0
"""A firing that ends delivers other spooled records for at most this long: enough for hundreds, and too short for two
firings of a minutely line to overlap."""
RECORD_GIVE_UP = RECORD_TIMEOUT + CALL_TIMEOUT + BACKLOG_AFTER_END
"""The guard waits this long for its store thread, whose last call may still be running."""
LOG_GOODBYE = 2.0
"""A firing that ends waits this long for the log store: enough to connect to a distant server and to write one record,
and too short for two firings of a minutely line to overlap."""
LOG_BACKLOG = LOG_GOODBYE / 2
"""The part of it for older spooled records; the rest is for the record of this firing."""
LOG_RECORD_TIMEOUT = 5.0
"""The limit for one record to reach the log store."""
LOG_IDLE = 10.0
"""After this long without a record the connection to the log store is closed: the job may run for hours."""
LOG_LONGEST_PAUSE = 30.0
"""The longest pause between two tries to reach the log store while the job runs."""
LOG_LAST_PAUSE = 0.2
"""The longest pause between two tries when the firing waits only for the log store."""

# Retention

KEEP_EXECUTIONS = 400 * DAY
"""The default of `[retention] executions`: more than a year, so that a yearly job has its last run on record."""
KEEP_SKIPS = 7 * DAY
"""The default of `[retention] skips`: 40 hosts with 50 minutely lines write 2.8 million skips a day."""
LEAST_EXECUTIONS = 7 * DAY
"""What a new store keeps of the executions, whatever a firing asks for: the last run of a weekly job."""
HOST_FORGOTTEN_AFTER = 35 * DAY
"""A host that has not fired a key for this long fires it no more: three ticks of a weekly job, and two weeks more."""
LEAST_SKIPS = DAY
"""What a new store keeps of the skips: the last night. More could fill a small disk."""
ENDS_PER_PRUNE = 16
"""On PostgreSQL, one end of so many removes expired rows, by chance: that costs a new session as much as five ends."""

# Commands for people

LOG_CATCHES_UP = 5.0
"""`audit` waits this long for the log store, to which firings write for up to `LOG_GOODBYE` before they spool."""
SETTLED = 60.0
"""After this long the start of a tick is recorded like its skips, in a separate log store too."""
MISSED_AFTER = 600.0
"""A tick that was due this long ago and was not started is missed: cron, a retry of the network and `--wait` are
over. With a longer --starting-deadline, that counts."""
SILENT_AFTER = 900.0
"""A host that has fired none of the last three ticks of a key for this long is silent: a reboot is over by then."""
SHORTEST_PATIENCE, LONGEST_PATIENCE = 60.0, 7 * DAY
"""What people may set of `missed_after` and, from 0 on, of `silent_after` and `for`: a pass is made each minute."""
SILENT_WAIT = 2.0
"""A firing at a terminal or with -v says what it waits for after this long: shorter waits are usual."""
BAR_AFTER = 1.0
"""Long work shows a bar at a terminal after this long: what is done before needs none, and would flicker."""
LEAST_SILENCE = 3600.0
"""A key without a schedule is not silent before this, however often it usually runs."""
ZONE_STEP = 900.0
"""The offsets of time zones are multiples of this."""
ZONE_STEP_WITHIN = 20.0
"""Cron, the interpreter and a connection need less, from a tick in cron's zone to the start of a firing on record."""
SLOW_AND_MORE = 60.0
"""A job is not slow before it has run this much longer than usual: short jobs vary by seconds."""
SLOW_TIMES = 3
"""A job is slow when it has run this many times as long as usual: the default of `check --slow`."""
EARLIEST_TIME, LATEST_TIME = -1.0 * DAY, 221845478400.0
"""What people may name: from the first day of 1970 to the last one of 8999 in any zone. Every clock can show these, and
schedules find their next ticks: Python's calendar ends with 9999."""
ANSWER_WITHIN = "10s"
"""`check` answers within this time: monitoring systems end a plugin after 10 s to a minute, without a word."""
SHORTEST_ANSWER, LONGEST_ANSWER = 1.0, 3600.0
"""The bounds of `check --timeout`."""
ONE_STEP = 0.5
"""A loss and the start that found it are one step, but a store may read its clock twice for them."""
PLAIN_SKIP_WITHIN = 10.0
"""A skip that the store decided within so many seconds of its firing, by the clocks of both, is a plain one."""
PLAIN_SKIP_EARLY = 20.0
"""So many seconds before the time of its tick a plain skip may happen."""
PLAIN_SKIP_LATE = 500.0
"""So many seconds after it: with the others, 19 bits hold the milliseconds."""
RECENT_TROUBLE = 2 * DAY
"""`why` names the last tick that ended badly for so long, although later ones succeeded: until the next morning."""
SAME_TIME = 2.0
"""`why` does not mention a difference between two clocks, or two steps of one firing, that is smaller than this."""
CLOCK_ROUNDING = 0.001
"""Two times of the log that are closer than this are equal."""
SKIP_WINDOWS = (600.0, 4800.0, 38400.0, 307200.0)
"""PostgreSQL looks for the newest skips in the last ten minutes, then in windows eight times as long, then in all
skips: the index on their time finds a range without sorting the rest."""
COMPLETION_TIMEOUT = 1.0
"""The limit for shell completion to ask the store: a person waits after a TAB."""
FOLLOW_POLL = 1.0
"""Between two polls of `history --follow`."""
REQUEST_POLL = 0.5
"""Between two polls of `stop` and `release`, with jitter: commands for people get no notifications."""
ASSUMED_GRACE = 10.0
"""`stop` assumes this grace for a job whose own --grace it does not know: the default of that option."""
STOP_MARGIN = 10.0
"""Within this time a running holder acknowledges a stop and a poll sees it."""
RELEASE_MARGIN = 5.0
"""Within this time a running holder acknowledges a release and a poll sees it."""
TAKEOVER_WITHIN = 3.0
"""A standby starts within this time after a lease has ended."""
GRID_STEPS = (
    *(60, 120, 300, 600, 900, 1200, 1800),
    *(1 * HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 6 * HOUR, 8 * HOUR, 12 * HOUR),
    *(1 * DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY, 3640 * DAY),
)
"""How much time a column of `timeline` may have: parts of an hour, of a day, then days and weeks."""
SHORTEST_DRILL, LONGEST_DRILL = 0.1, 1440
"""The bounds of `drill --minutes`."""
DRILL_ENDING = 60
"""So many seconds a drill usually takes after its last fault: every key has to run once more, and leases to end."""
