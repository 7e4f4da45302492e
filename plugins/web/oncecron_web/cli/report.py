"""`oncecron report`: every key on one page for a browser, which needs nothing else."""

from __future__ import annotations

from oncecron.cli import output
from oncecron.cli.command import (
    SINCE,
    STORE_OPTIONS,
    UTC,
    TableCommand,
    incomplete,
    moment,
    store_and_log,
)
from oncecron.cli.progress_bar import progress_bar
from oncecron.cli.sentences import refuse_unknown_keys, valid_key
from oncecron.cli.whole_file import replace
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import UsageError
from oncecron.core.text import Clock
from oncecron.core.units import LONGEST_DURATION
from oncecron.log.sources import Sources, configured_keys
from oncecron.log.time_span import EXPECTED

_STANDARD_OUTPUT = "-"

OPTIONS = (
    Option(
        "html", "text", "Write the page to this file, or to standard output with `-`.", "FILE", "Output",
        completion="file",
    ),
    SINCE._replace(help=f"Let the timeline begin then: {EXPECTED}.", default="30d"),
    UTC,
    *STORE_OPTIONS,
)  # fmt: skip


def _report(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    path: str | None = settings["html"]
    if path is None:
        raise UsageError("--html is missing; write --html FILE, or --html - to print the page")
    if not path:
        raise UsageError("--html: the name of the file is empty (an unset variable?)")
    keys = {valid_key(word) for word in words}
    now = clock.wall()
    since = moment(settings["since"], now, utc=settings["utc"])
    since = max(since, now - LONGEST_DURATION)
    if since >= now:
        raise UsageError(f"--since: {settings['since']} is not in the past")

    from oncecron_web.render import page  # noqa: PLC0415 - jinja2 is not for --help
    from oncecron_web.store_questions import overview  # noqa: PLC0415

    with progress_bar("report") as progress, store_and_log(settings) as (store, log):
        progress(what="reading the log")
        sources = Sources(store, log, now, configured_keys(settings))
        if keys:
            refuse_unknown_keys(keys, {shard.key for shard in sources.job_keys}, log)
        shown = overview(sources, settings, since=since, keys=keys)
        progress(what="drawing the page")
        text = page("overview.html", Clock(settings["utc"]), **shown).encode("utf-8")
    if path == _STANDARD_OUTPUT:
        output.give(text)
    else:
        replace(path, text)
    return incomplete(store, log)


COMMAND = TableCommand(
    "report", OPTIONS, _report,
    about="Write one page for a browser: what is wrong and what happened, every key with its last runs, a timeline, a "
    "calendar, the hosts, and what runs now; with KEY, only these keys. The page needs no other file and no script. "
    "The file is replaced in one step, so a web server can serve it.",
    examples=(
        "oncecron report --html /var/www/html/oncecron.html",
        "oncecron report --html - --since 7d billing-nightly >billing.html",
    ),
    words="[KEY...]",
)  # fmt: skip
