"""`oncecron notify`: send what has gone wrong, and what has recovered, once to each channel.

Cron starts it every minute on every host. It claims the minute as a firing of the key `oncecron/notify`, whose command
is `oncecron notify` again: with that key in its environment it makes the pass. So the rest is as for any job: one host
at a time, another one after it died, and a pass that hangs is stopped.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import STORE_OPTIONS, TableCommand, incomplete, store_and_log
from oncecron.config.options import Option
from oncecron.config.run_parser import ParsedRun
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import EX_CONFIG, UsageError
from oncecron.host.names import host_name
from oncecron.host.stderr import complain
from oncecron_notify.channels import render
from oncecron_notify.message import Evidence
from oncecron_notify.notify_table import NOTIFY_KEY, read_notify
from oncecron_notify.notify_times import NOTIFY_TIMEOUT, NOTIFY_TTL, NOTIFY_WAITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncecron.core.text import Clock
    from oncecron.stores.reader import Reader
    from oncecron.watch.findings import Finding, Limits, Situation
    from oncecron_notify.notify import Context, Result
    from oncecron_notify.notify_table import Notify

# ruff: noqa: PLC0415 - most hosts skip the pass, each minute

OPTIONS = (
    Option("now", "flag", "Make a pass now, and print what was sent.", "", "What to do"),
    Option(
        "dry-run", "flag", "Print what would be sent to each channel, and send nothing.", "", "What to do", short="n",
    ),
    Option("test", "flag", "Send a test message to each channel.", "", "What to do"),
    *STORE_OPTIONS,
)  # fmt: skip
_MODES = ("now", "dry-run", "test")
_OF_THE_FIRING = {
    "ttl": f"{NOTIFY_TTL:g}s",
    "timeout": f"{NOTIFY_TIMEOUT:g}s",
    "grace": "2s",
    "pass-store": "true",
}
"""Options of `run` for the firing, where the section of its key sets no others."""
_WAIT = "60s"
"""How long --now waits for a pass that is under way."""


def _notify(given: dict[str, str], _words: list[str]) -> int:
    modes = [f"--{mode}" for mode in _MODES if mode in given]
    if len(modes) > 1:
        raise UsageError(f"{' and '.join(modes)} contradict each other; leave one out")
    settings = Settings(OPTIONS, given, NOTIFY_KEY)
    settings.address(), settings.log()  # checked first: what is wrong there stops every job
    notify, problems = read_notify(settings.file)
    if "dry-run" in given:
        status = _show(settings, notify)
    elif "test" in given:
        status = _test(settings, notify)
    elif os.environ.get("ONCECRON_KEY") == NOTIFY_KEY:
        status = _pass(settings, notify)
    else:
        if problems and "now" not in given:
            time.sleep(NOTIFY_WAITS)
        return _fire(settings, given)
    for problem in problems:
        complain(str(problem))
    return EX_CONFIG if problems else status


def _fire(settings: Settings, given: dict[str, str]) -> int:
    """Claim the pass; the command of this firing makes it."""
    from oncecron.cli.run import observe
    from oncecron.host.installation import own_command
    from oncecron.run.firing import run

    section = settings.file.jobs.get(NOTIFY_KEY, {})
    options = {name: text for name, text in _OF_THE_FIRING.items() if name not in section}
    options["key"] = NOTIFY_KEY
    for option in STORE_OPTIONS:
        if option.name in given:
            options[option.name] = given[option.name]
            os.environ[option.environment or ""] = given[option.name]
    words = [*own_command(), "notify"]
    if "now" in given:
        options |= {"no-tick": "true", "wait": _WAIT}
        words.append("--now")
    return run(ParsedRun(options, words), observe)


def _pass(settings: Settings, notify: Notify) -> int:
    """Make the pass; return 1 if a row of the store cannot be read, or with --now if a channel has not acknowledged."""
    from oncecron_notify.notify import deliver, prepare

    with store_and_log(settings) as (store, log):
        context = _context(settings, store, log)
        results = deliver(context, notify, prepare(context, notify))
        status = _report(results, now=settings["now"])
        return status or incomplete(store, log)


def _report(results: Iterable[Result], *, now: bool) -> int:
    """Print what came of each channel; return the exit status.

    Without `now`, that is a failure when it is new, because cron mails it. The store has it as a finding.
    """
    status = 0
    for result in results:
        if result.error is not None:
            status = int(now)
            if result.new or now:
                complain(
                    f"channel {result.channel}: {result.error}; it is tried again at each pass"
                )
        elif now:
            many = f"{result.sent} change{'s' if result.sent != 1 else ''}"
            output.say(f"{result.channel}: sent {many}", output.standard_output())
    return status


def _context(settings: Settings, store: Reader, log: Reader) -> Context:
    from oncecron.log.sources import Sources
    from oncecron.log.why import evidence
    from oncecron.watch.situation import situation_of
    from oncecron_notify.notify import Context

    now = clock.wall()

    def situation(limits: Limits) -> Situation:
        # Without the keys of this host's file: the next pass may be that of a host with another one.
        return situation_of(Sources(store, log, now), settings.file, limits)

    sources = Sources(store, log, now)

    def explain(found: Finding, shown: Clock) -> Evidence:
        return Evidence(*evidence(sources, found.key or "", found.tick, found.since, shown))

    return Context(store, settings["namespace"], host_name(), now, situation, explain)


def _show(settings: Settings, notify: Notify) -> int:
    from oncecron_notify.notify import prepare

    stream = output.standard_output()
    with store_and_log(settings) as (store, log):
        prepared = prepare(_context(settings, store, log), notify)
        status = incomplete(store, log)
    for each in prepared:
        name = f"channel {each.channel.name}, {each.channel.shown}"
        if each.message is None:
            output.say(f"{name}: nothing to send", stream)
        else:
            output.say(f"{name}:\n{render(each.channel, each.message)}", stream)
    return status


def _test(settings: Settings, notify: Notify) -> int:
    from oncecron_notify.notify import send_all, trial_messages

    status = 0
    with store_and_log(settings) as (store, log):
        trials = trial_messages(_context(settings, store, log), notify)
    for each, error in send_all(trials):
        name = f"channel {each.channel.name}, {each.channel.shown}"
        if error is None:
            output.say(f"{name}: acknowledged", output.standard_output())
        else:
            status = 1
            complain(f"{name}: {error}")
    return status


COMMAND = TableCommand(
    "notify", OPTIONS, _notify,
    about="Compare the findings of `oncecron check` with what each channel of the configuration file knows, and send "
    "one message for all changes. Cron starts it every minute on every host; one of them makes the pass. Each change "
    "is sent once to each channel, and again only if the acknowledgement was lost. Nothing is printed if all is "
    "well.",
    examples=("oncecron notify", "oncecron notify --test", "oncecron notify --dry-run"),
)  # fmt: skip
