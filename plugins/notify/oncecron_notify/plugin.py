"""What `notify` brings to people's commands: its table of the configuration file, and channels that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.core.diagnosis import Diagnosis
from oncecron.core.log_rows import ConfiguredValue, Told
from oncecron.core.masking import visible
from oncecron.core.text import count
from oncecron.plugins import Plugin
from oncecron.watch.findings import CRITICAL, Kind, finding
from oncecron_notify.changes import failing_channels, knowledge_in
from oncecron_notify.notices import notices, other_notices, remove_other_notices
from oncecron_notify.notify_table import NOTIFY_KEY, channel_names, channel_section, parse_notify
from oncecron_notify.notify_times import CHANNEL_FORGOTTEN, CHANNEL_TRIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oncecron.config.file import File
    from oncecron.config.settings import Settings
    from oncecron.log.sources import Sources
    from oncecron.stores.reader import Reader
    from oncecron.watch.findings import Finding
    from oncecron_notify.changes import Failing


def _values(settings: Settings, key: str | None) -> Iterator[ConfiguredValue]:
    for channel in parse_notify(settings.file)[0].channels:
        if key is None or channel.has_key(key):
            keys = f" ({', '.join(channel.keys)})" if key is None else ""
            place = f"{settings.file.path} {channel_section(channel.name)}"
            yield ConfiguredValue("channel", f"{channel.shown}{keys}", place)


def _findings(sources: Sources, file: File) -> Iterator[Finding]:
    found = notices(sources.store, channel_names(file))
    return of_channels(failing_channels(found), sources.now)


def _told(sources: Sources, file: File) -> Iterator[tuple[str, Told]]:
    for notice in notices(sources.store, channel_names(file)):
        yield from ((notice.channel, each) for each in knowledge_in(notice).told)


def of_channels(failing: Mapping[str, Failing], now: float) -> Iterator[Finding]:
    """Yield the channels that fail now, and not for the first time."""
    for name, how in failing.items():
        if how.tries >= CHANNEL_TRIES and how.tried_at >= now - CHANNEL_FORGOTTEN:
            reason = f"channel {visible(name)} of notify fails: {visible(how.error)}"
            yield finding("channel", None, 1, reason, since=how.since, channel=name)


def _others(settings: Settings, store: Reader, *, remove: bool = False) -> int:
    """Return how many channels the store knows that the file does not name: one without channels names none."""
    names = channel_names(settings.file)  # and the ping
    ask = remove_other_notices if remove else other_notices
    return ask(store, names) if len(names) > 1 else 0


def _store(settings: Settings, store: Reader) -> Iterator[Diagnosis]:
    if others := _others(settings, store):
        text = (
            f"the store has records of {others} channels that the configuration file does not name"
        )
        cure = "`oncecron prune` as the store's owner removes them"
        yield Diagnosis("warn", "notify", text, cure)


def _prune(settings: Settings, store: Reader, dry_run: bool) -> Iterator[str]:
    if others := _others(settings, store, remove=not dry_run):
        yield f"{count(others, 'channel')} of notify that {settings.file.path} does not name"


PLUGIN = Plugin(
    problems=lambda file: parse_notify(file)[1],
    values=_values,
    kinds={
        "channel": Kind(
            CRITICAL, "Messages of `oncecron notify` fail.", "channel {channel} of notify fails",
            cure="correct it in the configuration file, and try it: `oncecron notify --test`",
            says=("failed", NOTIFY_KEY),
        )
    },
    findings=_findings,
    told=_told,
    store=_store,
    prune=_prune,
)  # fmt: skip
