"""The use-case `run`: one firing, from what was typed to its exit status.

read        options, environment, file -> settings; key and tick are checked
tick        from the host's clock at the start of this process, once, never again after waiting
look        is the command there and executable?  If not: `broken`, recorded, 126 or 127, and nothing
            is claimed, or a broken host, failing fastest, would win every tick
supervise   wrapper and guard (see there): claim, start, heartbeat, kill, record
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncecron import clock, messages, records, tick
from oncecron.attempts import Retrying
from oncecron.config import Settings, job_section
from oncecron.errors import (
    EX_NOT_EXECUTABLE,
    EX_NOT_FOUND,
    CommandError,
    ConfigurationError,
    UnknownZoneError,
    UsageError,
)
from oncecron.joblog import JobLog
from oncecron.model import FAILOVER_RETRIES, Firing, Holder, Refusal
from oncecron.options import BOURNE_SHELL, KEY_LETTERS, KEY_RULE, OWN_SHELL, RUN_OPTIONS, is_key
from oncecron.plan import Log, Plan
from oncecron.spool import SpoolError, spool_of
from oncecron.stores import open_firing_store
from oncecron.together import conflicts, tick_rules
from oncecron.wrapper import supervise

if TYPE_CHECKING:
    from oncecron.options import ParsedRun
    from oncecron.store import FiringStore

_MIN_GAP = 30.0
_RECORD_WITHIN = 10.0  # seconds to record that this host cannot start the command


def run(parsed: ParsedRun) -> int:
    """Carry out `oncecron run`; return the exit status. Raises `OncecronError` before anything runs."""
    plan = make_plan(parsed)

    def open_store() -> FiringStore:
        return open_firing_store(plan.address, plan.namespace, plan.firing.ttl)

    try:
        look_up(plan.command[0])
    except CommandError as error:
        _record_broken(plan, open_store(), str(error))
        raise
    return supervise(plan, open_store)


def make_plan(parsed: ParsedRun) -> Plan:
    """Decide everything that is decided before a process is started."""
    fired_at = clock.process_started()
    key = checked_key(parsed.given.get("key"))
    settings = Settings(RUN_OPTIONS, parsed.given, key)
    _check_together(settings, parsed.command)
    command = _command(settings, parsed.command, key)
    firing_tick, schedule = _tick(settings, fired_at)
    retrying = _retrying(settings)
    address, log, namespace = settings.address(), settings.log(), settings["namespace"]
    firing = Firing(
        key=key,
        shard=0,
        tick=firing_tick,
        owner=_random_uuid(),
        holder=Holder(host_name(), os.getpid(), user_name()),
        command=shown(command),
        fired_at=fired_at,
        ttl=settings["ttl"],
        min_gap=_min_gap(settings, firing_tick),
        starting_deadline=_starting_deadline(settings, firing_tick),
        again=_again(settings),
        schedule=schedule,
        zone=settings["tz"],
        shards=settings["shards"],
        failover=bool(settings["failover"]),
        retries=FAILOVER_RETRIES
        if settings["failover"] and settings["retries"] is None
        else retrying.retries,
    )
    return Plan(
        firing=firing,
        command=tuple(command),
        address=address,
        namespace=namespace,
        spool=spool_of(address, namespace),
        log=Log(log, spool_of(log, namespace)) if log else None,
        retention=settings.file.retention,
        grace=settings["grace"],
        timeout=settings["timeout"],
        wait=settings["wait"],
        retrying=retrying,
        skip_exit=settings["skip-exit"],
        on_store_error=settings["on-store-error"],
        connect_timeout=settings["connect-timeout"],
        verbose=settings["verbose"] or 0,
        terminal=os.isatty(0),
        capture=settings["capture"],
    )


def _check_together(settings: Settings, words: list[str]) -> None:
    """Raise `UsageError`, or `ConfigurationError` for what nobody typed, if options exclude each other."""
    conflict = next(conflicts(settings.__getitem__, settings.typed, words), None)
    if conflict:
        typed = any(map(settings.typed, conflict.names))
        raise (UsageError if typed else ConfigurationError)(str(conflict))


def _command(settings: Settings, words: list[str], key: str) -> list[str]:
    """Return the command's words; what a shell is to run becomes the shell's own."""
    string = settings["shell"]
    if string is None and not words:
        string = settings.configured_command()
        if string is None:
            raise UsageError(
                "the command is missing: write it behind --, or as --shell STRING, or as `command` of "
                f"{job_section(key)}; see oncecron run --help"
            )
    return words if string is None else [shell(), "-c", string]


def shell() -> str:
    """Return $SHELL, which is the shell by which cron runs its lines, else /bin/sh; never our own."""
    named = os.environ.get("SHELL", "")
    return BOURNE_SHELL if named.rpartition("/")[2] in ("", OWN_SHELL) else named


def checked_key(key: str | None) -> str:
    """Return the key, or raise `UsageError`."""
    if key is None:
        raise UsageError("--key is missing: name what must run once, the same on every host")
    if not is_key(key):
        raise UsageError(f"--key {key!r}: {KEY_RULE}")
    if os.environ.get("ONCECRON_KEY") == key:
        raise UsageError(
            f"--key {key}: this command already runs under that key and would wait for itself; "
            "give the inner run a key of its own"
        )
    return key


def _tick(settings: Settings, fired_at: float) -> tuple[tick.Tick, str | None]:
    """Return the tick, and the schedule it comes from."""
    rule = next(iter(tick_rules(settings.__getitem__, settings.typed)), "minute")
    try:
        if rule == "schedule":
            schedule = settings["schedule"]
            return tick.scheduled_tick(schedule, settings["tz"], fired_at), schedule
        if rule == "tick":
            return tick.named_tick(settings["tick"]), None
    except ValueError as error:
        wrong_zone = isinstance(error, UnknownZoneError) and settings["tz"] is not None
        culprit = "tz" if wrong_zone else rule
        kind = UsageError if settings.typed(culprit) else ConfigurationError
        raise kind(f"{settings.source(culprit)}: {error}") from error
    return (tick.NO_TICK if rule == "no-tick" else tick.minute_tick(fired_at)), None


def _min_gap(settings: Settings, firing_tick: tick.Tick) -> float | None:
    """Return the gap; one that is configured for another rule does not apply."""
    given: float | None = settings["min-gap"]
    if firing_tick.rule in ("minute", "none"):
        return _MIN_GAP if given is None and firing_tick.rule == "minute" else given
    return None


def _starting_deadline(settings: Settings, firing_tick: tick.Tick) -> float | None:
    """Return the deadline; one that is configured for another rule does not apply."""
    given: float | None = settings["starting-deadline"]
    return None if firing_tick.instant is None else given


def _again(settings: Settings) -> bool:
    if settings["again"] and settings["tick"] is None and not os.isatty(0):
        raise UsageError(
            "--again: in a crontab it would run every tick on every host; use a terminal, or name the tick"
        )
    return bool(settings["again"])


def _retrying(settings: Settings) -> Retrying:
    """Return what to do about failures; a delay or codes that are configured wait for --retries."""
    return Retrying(
        settings["retries"] or 0, settings["retry-delay"], settings["no-retry-on"] or frozenset()
    )


def look_up(program: str) -> str:
    """Return the path that will be executed. Raises `CommandError` like a shell: 127, or 126."""
    if not program:
        raise CommandError("the command is empty", EX_NOT_FOUND)
    if "/" in program:
        candidates = [program]
    else:
        path = os.environ.get("PATH", os.defpath)
        candidates = [os.path.join(directory or ".", program) for directory in path.split(":")]
    found = [candidate for candidate in candidates if os.path.exists(candidate)]
    for candidate in found:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            _refuse_missing_interpreter(candidate)
            return candidate
    if found:
        kind = "a directory" if os.path.isdir(found[0]) else "not executable"
        raise CommandError(f"{found[0]} is {kind}", EX_NOT_EXECUTABLE)
    where = "" if "/" in program else f" in PATH={os.environ.get('PATH', os.defpath)}"
    raise CommandError(f"{program} was not found{where}", EX_NOT_FOUND)


def _refuse_missing_interpreter(path: str) -> None:
    """Raise `CommandError` if a script's `#!` line names a program that is not there (execve(2): ENOENT)."""
    try:
        with open(path, "rb") as file:
            first = file.read(256).partition(b"\n")[0]
    except OSError:  # executable and not readable: a binary
        return
    words = first[2:].split() if first.startswith(b"#!") else []
    if words and not os.path.exists(words[0]):
        interpreter = os.fsdecode(words[0])
        raise CommandError(
            f"{path}: its interpreter {interpreter} was not found", EX_NOT_EXECUTABLE
        )


def _record_broken(plan: Plan, store: FiringStore, why: str) -> None:
    refusal = Refusal("broken", detail=why)
    log = JobLog(plan)
    log.tell(records.skip_record(plan.firing, refusal))
    deadline = clock.lease_time(store.lease_clock) + min(plan.connect_timeout, _RECORD_WITHIN)
    try:
        records.tell_skip(store, plan.spool, plan.firing, refusal, deadline=deadline)
    except SpoolError as error:
        messages.complain(f"a record is lost: {error}")
    finally:
        store.close()
        log.close()


def host_name() -> str:
    """Return $ONCECRON_HOST, or the kernel's name of this host."""
    return messages.valid(os.environ.get("ONCECRON_HOST") or os.uname().nodename)


def user_name() -> str:
    """Return the name of the effective user, or its number where it has none."""
    import pwd  # noqa: PLC0415 - a test replaces it

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def shown(command: list[str]) -> str:
    """Return a command as one shell-quoted line of valid UTF-8."""
    return " ".join(_quoted(messages.valid(word)) for word in command)


def _quoted(word: str) -> str:
    if word and KEY_LETTERS.issuperset(word.replace("=", "").replace("%", "").replace("+", "")):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _random_uuid() -> str:
    """Return a random uuid of version 4 (RFC 9562); the uuid module costs a firing milliseconds."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
