"""Decide everything about one firing that is decided before a process starts."""

from __future__ import annotations

import os

from oncecron.config.file import job_section
from oncecron.config.options import (
    AUTO_KEY,
    KEY_RULE,
    LOG,
    RUN_OPTIONS,
    STORE,
    is_key,
    wrong_variables,
)
from oncecron.config.rules import AUTO_WITHOUT_COMMAND, conflicts, tick_rules
from oncecron.config.settings import Settings
from oncecron.core import clock, system, tick
from oncecron.core.errors import ConfigurationError, UnknownZoneError, UsageError
from oncecron.core.light_modules import sha256_digest
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import FAILOVER_RETRIES, Firing, Holder
from oncecron.core.retry import RetryPolicy
from oncecron.core.timing import DEFAULT_MIN_GAP
from oncecron.host.names import host_name, machine, user_name
from oncecron.host.stderr import complain
from oncecron.run.program import pipefail_shell, recorded_line, shell, shown_words
from oncecron.run.spool import spool_of
from oncecron.stores.address import command_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

    from oncecron.config.ping_table import Ping
    from oncecron.config.rules import Conflict
    from oncecron.config.run_parser import ParsedRun
    from oncecron.core.model import Lease, Retention
    from oncecron.run.place_file import PlaceFile
    from oncecron.run.seams import Body, Observer
    from oncecron.run.spool import Spool
    from oncecron.stores.address import Address


class LogSpec(NamedTuple):
    """A separate log store."""

    address: Address
    spool: Spool
    """Its own spool: the log store may lack records that the lease store has."""


class RunSpec(NamedTuple):
    """All that wrapper and guard need to know; durations in seconds."""

    firing: Firing
    command: tuple[str, ...]
    address: Address
    namespace: str
    spool: Spool
    log: LogSpec | None
    retention: Retention
    grace: float
    """From TERM to KILL, where the lease does not cut it short."""
    timeout: float | None
    wait: float
    """How long a firing waits for a running job (`--wait`)."""
    retry_policy: RetryPolicy
    skip_exit: int
    """The exit status of a firing that was refused (`--skip-exit`)."""
    on_store_error: Literal["fail", "skip", "run"]
    connect_timeout: float
    verbose: int
    terminal: bool
    """Standard input is a terminal: the job stays in its foreground process group."""
    program: str = ""
    """The path of the file that is executed for the command."""
    shown_program: str = ""
    """The first word of the command as messages may show it; see `shown_words`."""
    capture: int = 0
    """How many bytes of the job's output are recorded; 0: none, and its output is not touched."""
    pass_store: bool = False
    """Whether the job's environment keeps the variables that name a store, which may hold a password."""
    spread: float = 0.0
    """The longest wait before the claim (`--spread`), in seconds."""
    only_if: str | None = None
    """The test of this host, a string for the shell; None: every host is fit."""
    body: Body | None = None
    """What runs in the place of the command; None: it is executed."""
    observe: Callable[[RunSpec], Observer | None] | None = None
    """Makes the observer of a key that has `pings`, in the wrapper (`watch.pinger.start`)."""
    place: Callable[[RunSpec, Callable[[str], None]], PlaceFile] | None = None
    """Makes what has the places of a firing; None: there are none (`each`)."""
    pings: tuple[Ping, ...] = ()
    """The services that are pinged for this key."""
    reread: Callable[[], Settings] | None = None
    """Reads the options again, as files are now."""

    def reread_address(self) -> Address | None:
        """Return the store as it is configured now. Raises `OncecronError`."""
        return self.reread().address() if self.reread else None

    def reread_log(self) -> Address | None:
        """Return the log store as it is configured now. Raises `OncecronError`."""
        return self.reread().log() if self.reread else None

    def delay(self) -> float:
        """Return how much of --spread this host waits at this tick; without a tick, at this time."""
        firing = self.firing
        named = firing.tick.text or str(firing.fired_at)
        return self.spread * turn(firing.key, named, firing.holder.host)

    def firing_of(self, lease: Lease) -> Firing:
        """Return the firing of the shard, and of the tick, that a lease is for."""
        firing = self.firing._replace(shard=lease.shard)
        if lease.owner == firing.owner:
            return firing
        from oncecron.core.making_up import firing_of_missed  # noqa: PLC0415 - only who makes up pays

        return firing_of_missed(firing, tick.instant_of(lease.tick) or 0.0, lease.owner)

    def command_line(self, words: str) -> str:
        """Return `oncecron WORDS` for the store and namespace of this firing, in backquotes, to be pasted."""
        scheme = "sqlite://" if self.address.kind == "sqlite" else ""
        return command_line(words, scheme + self.address.target, self.namespace)

    def job_environment(self, lease: Lease | None, place: str | None = None) -> dict[str, str]:
        """Return the environment of the job: the present one with the `ONCECRON_` variables.

        `place`: the path of the file for it.
        """
        firing = self.firing_of(lease) if lease else self.firing
        told = {
            "ONCECRON_KEY": firing.key,
            "ONCECRON_TICK": firing.tick.text,
            "ONCECRON_EXECUTION_ID": str(lease.execution_id) if lease else None,
            "ONCECRON_FENCING_TOKEN": str(lease.token) if lease else None,
            "ONCECRON_ATTEMPT": str(lease.attempt if lease else 1),
            "ONCECRON_SHARD": str(lease.shard if lease else 0),
            "ONCECRON_SHARDS": str(firing.shards),
            "ONCECRON_PLACE": place,
        }
        hidden = () if self.pass_store else (STORE.environment, LOG.environment)
        given = {name: value for name, value in os.environ.items() if name not in hidden}
        if "TRACEPARENT" not in given:
            given["TRACEPARENT"] = _trace_parent(firing.owner)
        # The token of an outer run, and the locale that Python has set, are not for the job.
        merged: dict[str, str | None] = {**given, **told, "LC_CTYPE": _original_lc_ctype()}
        return {name: value for name, value in merged.items() if value is not None}


def turn(key: str, tick: str, host: str) -> float:
    """Return a number from 0 up to 1, evenly spread over hosts and ticks, and always the same for the same three."""
    return int(sha256_digest(f"{key}\n{tick}\n{host}")[:8], 16) / (1 << 32)


def _trace_parent(owner: str) -> str:
    """Return the parent of the job's spans as W3C Trace Context writes it: one trace for each firing.

    Jobs send it to other programs, and the owner id is the secret of a lease. So it is a digest of the id, which begins
    with the published one (`owner_digest`).
    """
    digest = sha256_digest(owner)
    return f"00-{digest[:32]}-{digest[32:48]}-01"


def _original_lc_ctype() -> str | None:
    """Return LC_CTYPE as this process received it: in the C locale, as from cron, Python replaces it (PEP 538)."""
    value = os.environ.get("LC_CTYPE")
    if value not in ("C.UTF-8", "C.utf8", "UTF-8"):
        return value
    try:
        with open("/proc/self/environ", "rb") as environment:
            given = environment.read().split(b"\0")
    except OSError:
        return value
    entries = (entry for entry in given if entry.startswith(b"LC_CTYPE="))
    return next((os.fsdecode(entry[9:]) for entry in entries), None)


def make_spec(parsed: ParsedRun) -> RunSpec:
    """Return the spec of a firing. Raises `OncecronError`."""
    fired_at = clock.process_started()
    key = key_of(parsed)
    settings = Settings(RUN_OPTIONS, parsed.given, key)
    check_together(settings, conflicts(settings.__getitem__, settings.is_typed, parsed.command))
    spec = spec_of(settings, parsed.command, key, fired_at, shards=settings["shards"])
    return spec._replace(place=_place_file)


def _place_file(spec: RunSpec, say: Callable[[str], None]) -> PlaceFile:
    from oncecron.run.place_file import PlaceFile  # noqa: PLC0415 - only a firing that starts a job pays

    return PlaceFile(spec.spool, spec.firing, say)


def spec_of(
    settings: Settings, words: list[str], key: str, fired_at: float, *, shards: int
) -> RunSpec:
    """Return the spec of a firing from its checked options and the words of its command. Raises `OncecronError`."""
    if settings["verbose"] or os.isatty(2):
        for problem in settings.file.problems:
            if not problem.stops:
                complain(str(problem))
        for wrong in wrong_variables(os.environ):
            complain("; ".join(wrong))
    command = _command(settings, words, key)
    shown = shown_words(command, settings["record-command"])
    firing_tick, schedule, utc_offset = tick_of(settings, fired_at)
    policy = retry_policy(settings)
    address, log, namespace = settings.address(), settings.log(), settings["namespace"]
    again = _again(settings, firing_tick)
    # A person waits for nothing that only the configuration file says.
    failover, wait, spread = (
        settings[name] if not again or settings.is_typed(name) else 0.0
        for name in ("failover", "wait", "spread")
    )
    firing = Firing(
        key=key,
        shard=0,
        tick=firing_tick,
        owner=random_uuid(),
        holder=Holder(host_name(), os.getpid(), user_name()),
        command=recorded_line(shown),
        fired_at=fired_at,
        ttl=settings["ttl"],
        min_gap=_min_gap(settings, firing_tick),
        starting_deadline=_starting_deadline(settings, firing_tick),
        again=again,
        schedule=schedule,
        zone=settings["tz"],
        shards=shards,
        failover=bool(failover),
        retries=FAILOVER_RETRIES if failover and settings["retries"] is None else policy.retries,
        machine=machine(),
        utc_offset=utc_offset,
    )
    if settings["catch-up"] is not None and schedule is not None and not firing.again:
        firing = _catching_up(firing, settings["catch-up"])
    return RunSpec(
        firing=firing,
        command=tuple(command),
        address=address,
        namespace=namespace,
        spool=spool_of(address, namespace),
        log=LogSpec(log, spool_of(log, namespace)) if log else None,
        retention=settings.file.retention,
        grace=settings["grace"],
        timeout=settings["timeout"],
        wait=wait,
        retry_policy=policy,
        skip_exit=settings["skip-exit"],
        on_store_error=settings["on-store-error"],
        connect_timeout=settings["connect-timeout"],
        verbose=settings["verbose"] or 0,
        terminal=os.isatty(0),
        shown_program=shown[0],
        capture=settings["capture"],
        pass_store=bool(settings["pass-store"]),
        spread=spread,
        only_if=settings["only-if"],
        pings=settings.file.pings_for(key),
        reread=settings.reread,
    )


def check_together(settings: Settings, found: Iterator[Conflict]) -> None:
    """Raise `UsageError` if options exclude each other; `ConfigurationError` if they come from the file."""
    conflict = next(found, None)
    if conflict:
        typed = any(map(settings.is_typed, conflict.names))
        raise (UsageError if typed else ConfigurationError)(str(conflict))


def _command(settings: Settings, words: list[str], key: str) -> list[str]:
    string = settings["shell"]
    if string is None and not words:
        string = settings.configured_command()
        if string is None:
            raise UsageError(
                "the command is missing; write it after --, or use --shell STRING, or set `command` in "
                f"{job_section(key)}{settings.near_section(key)}"
            )
    if string is None:
        return words
    return [*(pipefail_shell() if settings["pipefail"] else [shell()]), "-c", string]


def key_of(parsed: ParsedRun) -> str:
    """Return the key, also the one that is derived from the command for `auto`. Raises `UsageError`."""
    key = parsed.given.get("key")
    return check_key(_derived_key(parsed) if key == AUTO_KEY else key)


def _derived_key(parsed: ParsedRun) -> str:
    # Only this rule needs these modules.
    from oncecron.core.derived_key import PREFIX_VARIABLE, command_of, derived_key  # noqa: PLC0415

    if not (parsed.given.get("shell") or parsed.command):
        raise UsageError(str(AUTO_WITHOUT_COMMAND))
    command = command_of(parsed.given, parsed.command)
    key = derived_key(command, os.environ.get(PREFIX_VARIABLE), user_name)
    if not is_key(key):
        raise UsageError(f"${PREFIX_VARIABLE}: {key!r} is not a valid key; {KEY_RULE}")
    return key


def check_key(key: str | None) -> str:
    """Return the key, or raise `UsageError`."""
    if key is None:
        raise UsageError("--key is missing: name what must run once, the same on every host")
    if not is_key(key):
        [shown] = shown_words([key], "masked")  # an address that was meant for --store
        raise UsageError(f"--key {shown!r}: {KEY_RULE}")
    if os.environ.get("ONCECRON_KEY") == key:
        raise UsageError(
            f"--key {key}: this command already runs under that key and would wait for itself; "
            "give the inner run a key of its own"
        )
    return key


def tick_of(settings: Settings, fired_at: float) -> tuple[tick.Tick, str | None, int | None]:
    """Return the tick, its schedule, and how far local time is ahead of UTC then. Raises `OncecronError`."""
    rule = next(iter(tick_rules(settings.__getitem__, settings.is_typed)), "minute")
    try:
        if rule == "schedule":
            from oncecron.host.local_time import scheduled  # noqa: PLC0415 - many firings have no schedule

            schedule = settings["schedule"]
            found, utc_offset = scheduled(schedule, settings["tz"], fired_at)
            return found, schedule, utc_offset
        if rule == "tick":
            return tick.named_tick(settings["tick"]), None, None
    except ValueError as error:
        wrong_zone = isinstance(error, UnknownZoneError) and settings["tz"] is not None
        culprit = "tz" if wrong_zone else rule
        kind = UsageError if settings.is_typed(culprit) else ConfigurationError
        raise kind(f"{settings.source(culprit)}: {error}") from error
    return (tick.NO_TICK if rule == "no-tick" else tick.minute_tick(fired_at)), None, None


def _catching_up(firing: Firing, given: float | Literal["last"]) -> Firing:
    """Return a firing that makes up what was missed, if the scheduled time before its own is young enough for that."""
    from oncecron.core.making_up import looks_back_to  # noqa: PLC0415 - only a firing with the option pays
    from oncecron.host.local_time import ticks_before  # noqa: PLC0415

    age = 0.0 if given == "last" else given
    instant, schedule = firing.tick.instant or 0.0, firing.schedule or ""
    before = ticks_before(schedule, firing.zone, instant, looks_back_to(firing.fired_at, age), 1)
    return firing._replace(catch_up=age, previous=before[0] if before else None)


def _min_gap(settings: Settings, firing_tick: tick.Tick) -> float | None:
    """Return the gap; one that is configured for another rule does not apply."""
    given: float | None = settings["min-gap"]
    if firing_tick.rule in ("minute", "none"):
        return DEFAULT_MIN_GAP if given is None and firing_tick.rule == "minute" else given
    return None


def _starting_deadline(settings: Settings, firing_tick: tick.Tick) -> float | None:
    """Return the deadline; one that is configured for another rule does not apply."""
    given: float | None = settings["starting-deadline"]
    return None if firing_tick.instant is None else given


def _again(settings: Settings, firing_tick: tick.Tick) -> bool:
    changes = firing_tick.rule in ("schedule", "minute")
    if settings["again"] and changes and not os.isatty(0):
        raise UsageError(
            "--again: in a crontab it would run every tick on every host; use a terminal, or name the tick"
        )
    return bool(settings["again"])


def retry_policy(settings: Settings) -> RetryPolicy:
    """Return when to run a failed job again; a delay or codes in the file have no effect without --retries."""
    return RetryPolicy(
        settings["retries"] or 0, settings["retry-delay"], settings["no-retry-on"] or frozenset()
    )


def random_uuid() -> str:
    """Return a random uuid of version 4 (RFC 9562); importing `uuid` costs a firing milliseconds."""
    raw = bytearray(system.calls.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
