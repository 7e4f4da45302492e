"""Wrong variants of the product, each with one promise broken, to show that the checker bites.

The nemesis finds each of them (test_chaos.py, `tests/chaos --mutation all`).
"""

from patched import Change, DoesNotApplyError, Mutation, copy

__all__ = ["ALL", "Change", "DoesNotApplyError", "Mutation", "copy"]

EVERYWHERE = ("postgres", "pooled", "redis", "sqlite")
OVER_A_NETWORK = ("postgres", "pooled", "redis")
NO_SESSIONS = ("redis", "pooled", "postgres")
"""Where a session lock would put off the next start by a third of a ttl, and the job be over."""


def _mutation(
    name: str, breaks: str, *changes: Change,
    stores: tuple[str, ...] = EVERYWHERE, shows: tuple[str, ...] = (),
) -> Mutation:  # fmt: skip
    return Mutation(name, breaks, stores, shows, changes)


def _named(*mutations: Mutation) -> dict[str, Mutation]:
    return {mutation.name: mutation for mutation in mutations}


ALL = _named(
    _mutation(
        "no-lease-row",
        "The session's advisory lock alone decides: a living lease whose lock is free is no obstacle, so that two "
        "run at a time while a child whose session has ended is still dying.",
        Change(
            "core/decision.py",
            "    if lease is None or lease.ends_in <= 0:\n",
            '    if lease is None or lease.ends_in <= 0 or state.lock == "free":\n',
        ),
        Change(
            "stores/postgres/sql/grant.sql",
            "      and (k.expires_at <= clock_timestamp() or k.owner is null and k.running is not null)\n",
            "",
        ),
        # Behind a pooler there is no session lock, and on Redis and SQLite the lease is all that there is.
        stores=("postgres",),
        shows=("a proxy that resets",),
    ),
    _mutation(
        "lock-without-tick",
        "A tick that is done is not refused, so that a short job runs once on every host that fires late.",
        Change(
            "core/decision.py",
            "    if firing.again:\n        return None\n    started",
            "    if newest is not None:\n        return None\n    started",
        ),
    ),
    # A job that fails, times out or is stopped leaves a process that ignores TERM; another host fires the next tick
    # within the grace. What a successful job leaves is allowed, and shows nothing.
    _mutation(
        "release-before-dead",
        "The end is recorded and the lease released as soon as the direct child has ended, so that what it started "
        "lives on beside the next run.",
        Change(
            "run/job.py",
            "            if not children_left or self._succeeded(status):\n",
            "            if True:\n",
        ),
    ),
    # Answers alone are late, by d just under ttl/6 (a request that is late moves the expiry as well, and hides it),
    # then nothing passes any more before the next renewal: the child is killed d - 0.093 ttl after the lease's end,
    # at most 0.07 ttl (0.4 s of 6 s, 0.9 s of 12 s; with 60 s never, as an answer is waited for 5 s at most). A
    # waiting firing claims up to 0.25 s after that end: it takes many keys, or a larger ttl.
    _mutation(
        "deadline-from-receipt",
        "Trust counts from when the answer to a renewal arrived instead of when it was sent, so that the child may "
        "outlive the lease by as long as the answer took.",
        Change(
            "core/model.py",
            "    return sent + ttl - (TRUST_MARGIN_PER_TTL * ttl + TRUST_MARGIN)\n",
            "    from oncecron.core import clock\n\n"
            "    return clock.lease_time(clock.BOOTTIME) + ttl - (0.01 * ttl + 0.002)\n",
        ),
        stores=NO_SESSIONS,
        shows=("late answers, then silence",),
    ),
    # The connection breaks when a claim has been applied and before its answer is there. The firing then ends with
    # status 0 and a skip that names itself as the holder, its execution becomes `lost` and has no start, though
    # nobody was killed.
    _mutation(
        "retry-as-new-claim",
        "A claim that is sent again, since its answer was lost, has a new owner: it is refused because of its own "
        "lease, and the tick has an execution that nobody has started.",
        Change(
            "run/claimer.py",
            "        if isinstance(error, StoreUnavailable) and self._within_budget(self.due):\n",
            "        if isinstance(error, StoreUnavailable) and self._within_budget(self.due):\n"
            "            from oncecron.run.spec import random_uuid\n\n"
            "            self.firing = self.firing._replace(owner=random_uuid())\n",
        ),
        stores=OVER_A_NETWORK,
        shows=("lose an answer",),
    ),
    _mutation(
        "wall-clock",
        "Trust is judged by the host's wall clock, so that a clock that is set back lets the child outlive its lease.",
        Change(
            "core/clock.py",
            'BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)\n',
            "BOOTTIME: int = time.CLOCK_REALTIME\n",
        ),
        Change(
            "core/clock.py",
            "time.clock_gettime(BOOTTIME) - began",
            "time.clock_gettime(time.CLOCK_BOOTTIME) - began",
        ),
        # Of the lease on one machine holder and claimer look at one clock.
        stores=NO_SESSIONS,
        shows=("set the clock back and cut",),
    ),
    _mutation(
        "no-guard",
        "Nobody ends the job when the wrapper is killed, nor renews its lease, so that the next run begins beside it.",
        Change(
            "run/guard.py",
            "        self._wrapper_gone = True\n",
            "        self._wrapper_gone = True\n        system.calls.exit(75)\n",
        ),
        Change("run/process_tree.py", "    die_by(number)\n", "    die_by(0)\n"),
        shows=("kill the wrapper",),
    ),
    _mutation(
        "no-watchdog",
        "The wrapper does not look at the end of trust: a guard that is stopped or hangs neither renews nor ends "
        "the job, which lives on beside the next run.",
        Change("run/wrapper.py", "            if is_late:\n", "            if False:\n"),
        stores=("redis", "sqlite", "pooled", "postgres"),
        shows=("stop the guard of a new job",),
    ),
    _mutation(
        "leave-the-tree",
        "The wrapper does not kill what a killed guard leaves, so that a process that left the job's session lives "
        "on beside the next run.",
        Change("run/process_tree.py", "        while self.kill():\n", "        while False:\n"),
        shows=("kill the guard",),
    ),
    _mutation(
        "asking-renews",
        "Whoever meets a lease prolongs it, so that the key of a dead host is blocked for as long as others ask.",
        Change(
            "stores/postgres/sql/grant.sql",
            "   where k.key_id = p_key_id and k.expires_at > clock_timestamp() + k.ttl\n",
            "   where k.key_id = p_key_id\n",
        ),
        Change(
            "stores/redis/lua/shared.lua",
            "  if not lease.owner or lease.expires_at - now <= tonumber(lease.ttl) then return lease end\n",
            "  if not lease.owner then return lease end\n",
        ),
        Change(
            "core/decision.py",
            "Cut() if lease.ends_in > lease.ttl else",
            "Cut() if not lease.ttl - 1 < lease.ends_in <= lease.ttl else",
        ),
        Change(
            "stores/sqlite/sql/firing.sql",
            " WHERE key = :key AND shard = :shard AND boot = :boot AND expires_on_lease_clock > :lease_now + ttl\n",
            " WHERE key = :key AND shard = :shard AND boot = :boot\n",
        ),
        shows=("power off",),
    ),
    _mutation(
        "wrong-status",
        "The firing ends with 0 whatever its job ended with, so that nothing tells cron of a failure.",
        Change(
            "run/process_tree.py",
            "    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)\n",
            "    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0\n",
        ),
    ),
    # A job with a grandchild in a session of its own, which ignores HUP, times out (or its wrapper is killed). The
    # guard waits for the grandchild for ever, renews, and every newer tick is `held`.
    _mutation(
        "kill-group-only",
        "TERM and KILL go to the job's process group instead of to its whole tree, so that a process that called "
        "setsid lives on, and the key is blocked with it.",
        Change(
            "run/process_tree.py",
            "            if process and (pid, process.started) not in apart:\n",
            "            if process and (pid, process.started) not in apart and _in_group(pid):\n",
        ),
        Change(
            "run/process_tree.py",
            "def _children(parent: int) -> list[int]:\n",
            "_STARTED: list[int] = []\n\n\n"
            "def _in_group(pid: int) -> bool:\n"
            "    try:\n"
            "        return not _STARTED or os.getpgid(pid) == _STARTED[0]\n"
            "    except ProcessLookupError:\n"
            "        return False\n\n\n"
            "def _children(parent: int) -> list[int]:\n",
        ),
        Change(
            "run/process_tree.py",
            "    os.close(writer)\n    try:\n        failure = os.read(reader, 16)\n",
            "    os.close(writer)\n    _STARTED.append(pid)\n    try:\n        failure = os.read(reader, 16)\n",
        ),
    ),
    _mutation(
        "token-stands-still",
        "The fencing token of a grant is the last one again, so that a job that was overtaken passes for the present.",
        Change(
            "stores/postgres/sql/grant.sql",
            "{ns}.next_number(own.fence::bigint),",
            "greatest(own.fence::bigint, 1),",
        ),
        Change(
            "stores/redis/lua/shared.lua",
            "return whole(math.max((fence or 0) + 1, microseconds)) end\n",
            "return whole(math.max(fence or 0, 1)) end\n",
        ),
        Change(
            "stores/sqlite/lease_store.py",
            "max(state.fence + 1, _microseconds(now))",
            "max(state.fence, 1)",
        ),
    ),
    # Wrapper and guard of a job that writes through the fence are stopped beyond the ttl, and another host runs the
    # next tick: a write of the first is accepted after one with a higher token. A host that is frozen and thawed
    # shows it seldom: its job is killed within milliseconds.
    _mutation(
        "fence-asleep",
        "`assert_fence` accepts every token, so that a stale job writes beside the present one.",
        Change(
            "stores/postgres/sql/lease.sql",
            "  if (v_fence = p_token and p_token > 0) is not true then\n",
            "  if false then\n",
        ),
        stores=("pooled", "postgres"),
        shows=("stop wrapper and guard of a new job",),
    ),
    # The store is away when a firing begins (its `no-store` is never told), or when a job ends and for 10 s after:
    # its execution becomes `lost` without an exit code, though the firing ended with the job's own status.
    _mutation(
        "no-spool",
        "What the store could not be told is not kept, so that starts and refusals are missing from the log.",
        Change(
            "run/spool.py",
            '            return self.write_file(record["key"], name, record)\n',
            "            return name\n",
        ),
        shows=("away", "freeze the server", "connection storm"),
    ),
    _mutation(
        "no-skip",
        "A refusal is not recorded, so that nobody can tell why a firing started nothing.",
        Change(
            "stores/claim_loop.py",
            '    return not (refusal.own or is_repeated or firing.tick.rule == "catch-up")\n',
            "    return False\n",
        ),
    ),
    _mutation(
        "takeover-while-alive",
        "A host that waits for a tick (--failover) goes on with it although the holder's lease lives, so that an "
        "attempt begins beside the one before.",
        Change(
            "stores/postgres/sql/grant.sql",
            "      and (k.expires_at <= clock_timestamp() or k.owner is null and k.running is not null)\n",
            "",
        ),
        Change(
            "stores/redis/lua/expire.lua",
            "local lives = lease.owner and tonumber(lease.expires_at) > now\n",
            "local lives = false\n",
        ),
        Change(
            "stores/claim_loop.py",
            "            answer = decide(state, firing, watched=watched, alone=alone)\n",
            "            if awaited and firing.failover and state.lease:\n"
            "                state = state._replace(lease=state.lease._replace(ends_in=0.0), lock='free')\n"
            "            answer = decide(state, firing, watched=watched, alone=True)\n",
        ),
        Change(
            "stores/sqlite/sql/firing.sql",
            "AND l.boot = :boot AND l.expires_on_lease_clock > :lease_now)\n",
            "AND false)\n",
        ),
        Change(
            "stores/sqlite/sql/firing.sql",
            " WHERE key = :key AND shard = :shard AND (boot <> :boot OR expires_on_lease_clock <= :lease_now)\n",
            " WHERE key = :key AND shard = :shard\n",
        ),
    ),
    _mutation(
        "stopped-goes-on",
        "A waiting host goes on with what was stopped, so that nobody can stop a tick for good.",
        Change(
            "core/decision.py",
            'newest.outcome == "lost" or newest.retrying',
            'newest.outcome in ("lost", "stopped") or newest.retrying',
        ),
        shows=("kill the wrapper",),
    ),
    _mutation(
        "retries-too-many",
        "A job that fails is tried again more often than --retries says.",
        Change(
            "core/retry.py",
            " and attempt <= self.retries\n",
            " and self.retries > 0 and attempt <= self.retries + 2\n",
        ),
    ),
    _mutation(
        "parts-share-a-tick",
        "A tick is done when one of its parts is, so that the others are never started.",
        Change(
            "stores/postgres/sql/look.sql",
            "where x.key_id = k.key_id and x.tick::text = p_tick order by x.outcome",
            "where x.key_id in (select j.key_id from {ns}.job_key j where j.key = k.key)"
            " and x.tick::text = p_tick order by x.outcome",
        ),
        Change(
            "stores/postgres/sql/look.sql",
            "where x.key_id = k.key_id and x.tick::text = p_tick\n       order by case",
            "where x.key_id in (select j.key_id from {ns}.job_key j where j.key = k.key)"
            " and x.tick::text = p_tick\n       order by case",
        ),
        Change(
            "stores/postgres/look.py",
            '    is_new = is_untouched or _is_after(tick.instant, row.get("seen_until"))\n',
            "    is_new = False\n",
        ),
        Change(
            "stores/sqlite/sql/firing.sql",
            " WHERE key = :key AND tick = :tick AND shard = :shard\n ORDER BY",
            " WHERE key = :key AND tick = :tick\n ORDER BY",
        ),
        stores=("sqlite", "postgres", "pooled"),
    ),
    _mutation(
        "done-goes-on",
        "A waiting host goes on with what has succeeded, so that a tick runs once on every host that waits.",
        Change(
            "core/decision.py",
            'newest.outcome == "lost" or newest.retrying',
            'newest.outcome in ("lost", "succeeded") or newest.retrying',
        ),
    ),
    _mutation(
        "never-renews",
        "The lease is not renewed, so that every job that is longer than the ttl is killed.",
        Change(
            "run/store_thread.py",
            "        self._renew_at = now + self._interval * (1.0 if holds else random_fraction())\n",
            "        self._renew_at = NEVER\n",
        ),
    ),
    _mutation(
        "failure-as-success",
        "Every end is recorded as a success, so that the log knows of no failure.",
        Change(
            "run/job.py",
            '        outcome: Outcome = "succeeded" if code == 0 else "failed"\n',
            '        code = 0 if code else code\n        outcome: Outcome = "succeeded"\n',
        ),
    ),
    _mutation(
        "attempt-untold",
        "A job is told that it is the first attempt whichever it is.",
        Change(
            "run/spec.py",
            '"ONCECRON_ATTEMPT": str(lease.attempt if lease else 1)',
            '"ONCECRON_ATTEMPT": "1"',
        ),
    ),
    _mutation(
        "doubt-drawn-again",
        "An item in doubt is drawn again although nobody said that it may be, so that it is worked on twice.",
        Change(
            "../oncecron_each/spec.py",
            'redraw_below=attempts if settings["in-doubt"] == "retry" else 0',
            "redraw_below=attempts + 9",
        ),
        shows=("power off",),
    ),
)
SIMULATED = _named(
    _mutation(
        "claim-ended-unsaid",
        "A lease that ended before the answer to its claim came is not recorded as `not-started`, so that nobody "
        "runs its tick.",
        Change(
            "run/claimer.py",
            "            if isinstance(answer, Refusal) and answer.own:\n",
            "            if isinstance(answer, Refusal) and answer.own:\n                return answer\n",
        ),
        stores=OVER_A_NETWORK,
    ),
    _mutation(
        "renewal-ended-unsaid",
        "A lease that was granted too late to start with, and ends before it is renewed, is not recorded.",
        Change(
            "run/store_thread.py",
            "            self._lose(unbegun=self._renew_deadline < NEVER)\n",
            "            self._lose(unbegun=False)\n",
        ),
        stores=OVER_A_NETWORK,
    ),
    _mutation(
        "retry-ended-unsaid",
        "An attempt that was granted by an answer that was lost, and whose lease then ends, is not recorded.",
        Change(
            "run/store_thread.py",
            "            self._lose(unbegun=unanswered)\n",
            "            self._lose(unbegun=False)\n",
        ),
        stores=OVER_A_NETWORK,
    ),
    _mutation(
        "starts-late",
        "A job is started however little of its lease is left, so that it begins after the lease has ended.",
        Change(
            "run/guard.py",
            "        return lease.trusted_until - self.now() >= lease.ttl / 2\n",
            "        return True\n",
        ),
    ),
    _mutation(
        "leftover-ended",
        "What a successful part left running on purpose is ended when a later part of the same firing fails.",
        Change("run/job.py", "        self._tree.set_apart()\n", ""),
    ),
)
"""Made for the simulator, which finds them: four of them it had found in the product."""
