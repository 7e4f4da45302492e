"""Decide what `each` decides before a process starts: the spec of `run`, with slots for shards, and that of the items.

A tick of `each --slots N` has N + 1 shards. Shards 0 to N - 1 are the slots. Shard N is the load of the list.
"""

from __future__ import annotations

import os

from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import ConfigurationError, UsageError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import FAILOVER_RETRIES
from oncecron.core.retry import RetryPolicy, random_fraction
from oncecron.run.spec import check_together, key_of, random_uuid, retry_policy, spec_of
from oncecron_each.item_rules import each_conflicts, meaningless
from oncecron_each.item_times import LONGEST_LOAD
from oncecron_each.options import EACH_OPTIONS, ONLY_IN_RUN
from oncecron_each.shared_page import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oncecron.config.run_parser import ParsedRun
    from oncecron.core.model import Ending, Firing, Lease, RefusalReason
    from oncecron.run.spec import RunSpec
    from oncecron_each.runner import Runner

PLACEHOLDER = "{}"
"""Stands for an item in a word of the command, as for xargs and parallel."""
_NO_RETRY = RetryPolicy(0, (0.0, 0.0), frozenset())


class ItemsSpec(NamedTuple):
    """What a firing of `each` has beyond one of `run`: its `Body`. Durations are in seconds."""

    source: str | None
    """The command that lists the items, a string for the shell; None: they are on standard input."""
    null: bool
    """Items end with a NUL, not with a newline."""
    json: bool
    """Each item is a JSON object."""
    stdin: bool
    """The command gets its items on standard input."""
    in_shell: bool
    """The command is a string for the shell, in which nothing is replaced."""
    batch: int
    slots: int
    keep: float | None
    """How long the list stays at least after its load; None: as long as its tick."""
    redraw_below: int
    """How often an item in doubt is drawn at most, when it is retried; 0: it is not."""
    retry_policy: RetryPolicy
    """When an item is run again."""
    timeout: float | None
    """Of one start of the command."""
    failover: bool
    shows_progress: bool
    page: Page
    shards: Sequence[int]
    """Those that this firing claims, in turn."""
    number: int = 0
    """Which firing of this host it is, from 0."""

    @property
    def loads(self) -> bool:
        """Whether this firing loads the list."""
        return self.shards[0] == self.slots

    def skips(self, firing: Firing) -> bool:
        """Return whether another firing of this host holds the slot: no reason to claim it, unless that one may die."""
        return not self.failover and self.page.is_taken(firing.shard, self.number)

    def refuse(self, reason: RefusalReason, message: str) -> None:
        """Keep a refusal for the host, which shows one of them if it got no slot."""
        self.page.note_refusal(reason, message)

    def begin(
        self, spec: RunSpec, lease: Lease, environment: Mapping[str, str]
    ) -> Callable[[], int]:
        """Return what runs in the place of the command; see `Body.begin`."""
        from oncecron_each.loader import Loader  # noqa: PLC0415 - likewise
        from oncecron_each.worker import Worker  # noqa: PLC0415 - a firing that is skipped needs neither

        runner: type[Runner] = Loader if self.loads else Worker
        self.page.begin_slot(self.number, lease.shard)
        return runner.body(spec, self, lease, environment)

    def judge(self, ending: Ending) -> Ending:
        """Return the end of a slot from the end of its runner: it is `stopped` if items may be left for it."""
        verdict, note = self.page.verdict(self.number)
        self.page.end_slot(self.number)
        self.page.judge(self.number, "running")
        outcome = ending.outcome
        if outcome in ("succeeded", "failed"):
            if verdict == "not-loaded":
                outcome = "not-started"
            elif verdict != "over":
                outcome = "stopped"
                note = note or "the runner was killed"
        return ending._replace(
            outcome=outcome, note="; ".join(filter(None, (ending.note, note))) or None
        )


def make_each_spec(parsed: ParsedRun, *, shows_progress: bool) -> tuple[RunSpec, ItemsSpec, float]:
    """Return the spec of the firing that loads the list, its body, and how long the other firings wait for a slot.

    The number of the body is that of the others. Raises `OncecronError`.
    """
    fired_at = clock.process_started()
    key = key_of(parsed)
    settings = Settings((*EACH_OPTIONS, *ONLY_IN_RUN), parsed.given, key)
    if wrong := next(meaningless(settings.file, key), None):
        raise ConfigurationError(str(wrong))
    check_together(
        settings, each_conflicts(settings.__getitem__, settings.is_typed, parsed.command)
    )
    if settings["items"] is None and os.isatty(0) and not settings["again"]:
        raise UsageError("the items are missing; use --items LIST, or write them to standard input")
    slots = settings["slots"]
    spec = spec_of(settings, parsed.command, key, fired_at, shards=slots + 1)
    in_shell = settings["shell"] is not None or not parsed.command
    if in_shell:  # what the items follow: $0
        spec = spec._replace(command=(*spec.command, spec.command[0]))
    elif PLACEHOLDER in spec.command[0]:
        raise UsageError(
            f"{spec.shown_program!r}: {PLACEHOLDER} stands for an item, and the command cannot be one; write the "
            "command first"
        )
    jobs = min(settings["jobs"] or slots, slots)
    shows_progress = shows_progress or bool(spec.verbose)
    items = _items(settings, jobs, in_shell=in_shell, shows_progress=shows_progress)
    load = spec._replace(
        firing=spec.firing._replace(resumes=True, retries=0),
        wait=LONGEST_LOAD,
        timeout=None,
        retry_policy=_NO_RETRY,
        terminal=False,
        body=items,
    )
    return load, items, spec.wait


def _items(settings: Settings, jobs: int, *, in_shell: bool, shows_progress: bool) -> ItemsSpec:
    policy, slots = retry_policy(settings), settings["slots"]
    attempts = 1 + max(policy.retries, FAILOVER_RETRIES)
    return ItemsSpec(
        source=None if settings["items"] == "-" else settings["items"],
        null=bool(settings["null"]),
        json=bool(settings["json"]),
        stdin=bool(settings["stdin"]),
        in_shell=in_shell,
        batch=settings["batch"],
        slots=slots,
        keep=settings["keep"],
        redraw_below=attempts if settings["in-doubt"] == "retry" else 0,
        retry_policy=policy,
        timeout=settings["timeout"],
        failover=bool(settings["failover"]),
        shows_progress=shows_progress,
        page=Page(jobs + 1),
        shards=(slots,),
        number=jobs,
    )


def slot_specs(load: RunSpec, items: ItemsSpec, wait: float) -> list[RunSpec]:
    """Return the specs of the firings that work, from that of the load: each begins with another slot."""
    first, jobs = int(random_fraction() * items.slots), items.number
    specs = []
    for index in range(jobs):
        begin = first + index * items.slots // jobs
        turn = tuple((begin + number) % items.slots for number in range(items.slots))
        specs.append(
            load._replace(
                firing=load.firing._replace(owner=random_uuid()),
                wait=wait,
                body=items._replace(shards=turn, number=index),
            )
        )
    return specs
