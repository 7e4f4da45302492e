"""The table [notify] of the configuration file: the channels of `oncecron notify`, and what is sent to them.

A firing does not read it: what is wrong in it stops `oncecron notify` alone.
"""

from __future__ import annotations

import os
import stat

from oncecron.alerts.kinds import OPTIONS, states_of
from oncecron.config.convert import convert
from oncecron.config.file import FileProblem, did_you_mean, read_private
from oncecron.config.options import Option, is_key
from oncecron.config.ping_table import is_like, wrong_keys
from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.secrets import MASK, in_web_hook, masked
from oncecron.core.timing import CHANNEL_TIMEOUT, LONGEST_CHANNEL_TIMEOUT, SHORTEST_REMINDER
from oncecron.stores.address import shell_quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from oncecron.config.file import File

NOTIFY_KEY = "oncecron/notify"
"""The key of the pass: hosts claim it each minute, as they claim any job."""

PING = "ping_url"
"""The name of the ping among the channels; no channel can have it."""

_REMIND = Option("remind", "duration", "", minimum=SHORTEST_REMINDER)
_TIMEOUT = Option("timeout", "duration", "", minimum=1, maximum=LONGEST_CHANNEL_TIMEOUT)
_TOP = {option.name: option for option in (_REMIND, *OPTIONS)}
_URLS = ("url", "url_file")
_TARGETS = ("to", *_URLS, "command")
_FORMS = {"url": ("json", "slack", "mattermost"), "command": ("text", "json"), "to": ("text",)}
"""The forms of a message by what a channel has; the first is the default."""


class Channel(NamedTuple):
    """Where messages are sent."""

    name: str
    kind: str
    """`to` (mail), `url` or `command`."""
    target: str
    """The addresses, the URL, or the command for the shell."""
    form: str
    """`text`, `json`, `slack` or `mattermost`."""
    keys: tuple[str, ...] = ("*",)
    """The keys that it is for; `*` in them stands for any characters."""
    timeout: float = CHANNEL_TIMEOUT
    sender: str | None = None

    def is_for(self, key: str | None) -> bool:
        """Return whether findings of a key are sent here; None: of no key."""
        return key is None or any(is_like(key, each) for each in self.keys)

    @property
    def shown(self) -> str:
        """Where it sends to, without what may be a secret."""
        return shown_url(self.target) if self.kind == "url" else self.target


class Notify(NamedTuple):
    """What `oncecron notify` sends, and where."""

    channels: tuple[Channel, ...]
    remind: float | None
    """Repeat a finding after this time; None: never."""
    ping_url: str | None
    failures: int
    slow: int
    min_hosts: int
    states: Mapping[str, int]
    """The state of each kind of finding."""

    @property
    def names(self) -> list[str]:
        """Return what the store keeps documents of."""
        return [*(each.name for each in self.channels), PING]


def shown_url(url: str) -> str:
    """Return a URL without its path, which is the secret of a webhook."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{host}/{MASK}"


def channel_names(file: File) -> list[str]:
    """Return the same of a file, also of channels that this user may not read in full."""
    tables = file.notify.get("channel")
    return [*(tables if isinstance(tables, dict) else ()), PING]


def read_notify(file: File) -> Notify:
    """Return what a file sets. Raises `ConfigurationError` for the first problem, and without a channel."""
    notify, problems = parsed_notify(file)
    if problems:
        raise ConfigurationError(str(problems[0]))
    if not notify.channels:
        where = file.path or "the configuration file"
        raise ConfigurationError(
            f"no channel is configured; add a section [notify.channel.NAME] to {where}"
        )
    return notify


def parsed_notify(file: File) -> tuple[Notify, list[FileProblem]]:
    """Return what a file sets, without what is wrong in it, and the problems."""
    reader = _Reader(file)
    table = dict(file.notify)
    tables = table.pop("channel", {})
    if not isinstance(tables, dict):
        reader.wrong("channel", "channel must be tables: [notify.channel.NAME]")
        tables = {}
    ping = reader.url(table, "ping_url", "ping_url_file")
    values = reader.values(table)
    states = reader.states(values)
    channels = filter(None, (reader.channel(name, each) for name, each in tables.items()))
    return (
        Notify(
            tuple(channels),
            values["remind"],
            ping,
            values["failures"],
            values["slow"],
            values["min-hosts"],
            states,
        ),
        reader.problems,
    )


class _Reader:
    """Reads the table, and collects what is wrong in it."""

    def __init__(self, file: File) -> None:
        self.problems: list[FileProblem] = []
        self._file = file
        self._place = FileProblem(file.path or "", "", "[notify]", keys=(NOTIFY_KEY,))

    def wrong(self, name: str, reason: str) -> None:
        """Note a problem with a name of the table; an empty one: with the table."""
        place = self._place
        self.problems.append(FileProblem(place.path, reason, place.section, name, place.keys))

    def values(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of [notify] itself."""
        found = {
            name: None if option.default is None else convert(option, option.default)
            for name, option in _TOP.items()
        }
        for key, value in table.items():
            name = key.replace("_", "-")
            if name in _TOP:
                found[name] = self._converted(_TOP[name], value)
            elif isinstance(value, dict) and not any(
                isinstance(each, dict) for each in value.values()
            ):
                meant = channel_section(key)
                self.wrong(key, f"unknown section [notify.{key}]; a channel is {meant}")
            else:
                known = (each.replace("-", "_") for each in _TOP)
                self._unknown(key, (*known, "ping_url", "ping_url_file", "channel"))
        return found

    def states(self, values: Mapping[str, Any]) -> Mapping[str, int]:
        """Return the state of each kind of finding."""
        try:
            return states_of(values)
        except ValueError as error:
            self.wrong(str(error).partition(":")[0], str(error))
            return states_of({})

    def channel(self, name: str, table: Any) -> Channel | None:
        """Return a channel, None if it is wrong."""
        known = len(self.problems)
        self._place = self._place._replace(section=channel_section(name))
        if not isinstance(table, dict):
            self.wrong("", "a channel must be a table: [notify.channel.NAME]")
            return None
        if not is_key(name) or name == PING:
            self.wrong("", f"{name!r} cannot be the name of a channel; choose another one")
        given = [each for each in _TARGETS if each in table]
        if len(given) != 1:
            self.wrong("", f"set exactly one of {', '.join(_TARGETS)}")
            return None
        table = dict(table)
        kind = "url" if given[0] in _URLS else given[0]
        target = self._target(table, kind)
        form = self._form(table, kind)
        keys = table.pop("keys", ["*"])
        if problem := wrong_keys(keys):
            self.wrong("keys", problem)
        timeout = self._converted(_TIMEOUT, table.pop("timeout", CHANNEL_TIMEOUT))
        sender = self._sender(table, kind)
        for other in table:
            self._unknown(other, (*_TARGETS, "from", "form", "keys", "timeout"))
        if target is None or len(self.problems) > known:
            return None
        return Channel(name, kind, target, form, tuple(keys), timeout, sender)

    def url(self, table: dict[str, Any], name: str, file_name: str) -> str | None:
        """Take a URL out of a table: as it stands there, or from the file that is named there."""
        if name in table and file_name in table:
            self.wrong(file_name, f"{name} and {file_name} contradict each other; leave one out")
        path = table.pop(file_name, None)
        url = table.pop(name, None)
        if path is not None:
            return self._url_in(path, file_name)
        if url is not None and self._is_url(url, name):
            self._refuse_readable_secret(url, name, file_name)
            return str(url)
        return None

    def _url_in(self, path: Any, name: str) -> str | None:
        if not isinstance(path, str) or not path or "\0" in path:
            self.wrong(name, f"{name} must be the path of a file")
            return None
        path = os.path.join(os.path.dirname(self._file.path or ""), path)
        try:
            text, mode = read_private(path, f"{name}:")
        except ConfigurationError as error:
            self.wrong(name, str(error))
            return None
        if mode & stat.S_IROTH:
            cure = f"run `chmod 640 {shell_quoted(path)}`"
            self.wrong(name, f"{path} holds a secret and is world-readable; {cure}")
        return text.strip() if self._is_url(text.strip(), name) else None

    def _is_url(self, url: Any, name: str) -> bool:
        problem = _wrong_url(url)
        if problem:
            self.wrong(name, f"{name}: {problem}")
        return not problem

    def _refuse_readable_secret(self, url: str, name: str, file_name: str) -> None:
        if self._file.mode & stat.S_IROTH and (in_web_hook(url) or masked(url, store=False) != url):
            why = "this URL is a secret, and the file is world-readable"
            cure = f"move the URL to a file of its own, and name it in {file_name}"
            self.wrong(name, f"{name}: {why}; {cure}")

    def _target(self, table: dict[str, Any], kind: str) -> str | None:
        if kind == "url":
            return self.url(table, *_URLS)
        value = table.pop(kind)
        values = value if isinstance(value, list) and kind == "to" else [value]
        for each in values or [""]:
            if not isinstance(each, str) or not each.strip() or not each.isprintable():
                self.wrong(kind, f"{kind} must be a text of one line")
                return None
            if kind == "to" and (
                not each.isascii() or " " in each or "<" in each or each.startswith("-")
            ):
                self.wrong(kind, f"to: {each!r} is not a mail address; write NAME@HOST")
                return None
        return ", ".join(values)

    def _form(self, table: dict[str, Any], kind: str) -> str:
        forms = _FORMS[kind]
        form = table.pop("form", forms[0])
        if form not in forms:
            self.wrong("form", f"form: {form!r} is not one of {', '.join(forms)}")
        return str(form)

    def _sender(self, table: dict[str, Any], kind: str) -> str | None:
        if kind != "to" or "from" not in table:
            return None
        sender = table.pop("from")
        if not isinstance(sender, str) or not sender.strip() or not sender.isprintable():
            self.wrong("from", "from must be a mail address")
            return None
        return sender

    def _converted(self, option: Option, value: Any) -> Any:
        try:
            if isinstance(value, bool | list | dict):
                raise ValueError(f"{value!r} is neither a text nor a number")  # noqa: TRY301, TRY004 - the file's fault
            return convert(option, f"{value:g}" if isinstance(value, float) else str(value))
        except ValueError as error:
            self.wrong(option.name, f"{option.name}: {error}")
            default = option.default
            return None if default is None else convert(option, default)

    def _unknown(self, name: str, known: tuple[str, ...]) -> None:
        self.wrong(name, f"unknown key {name!r}; {did_you_mean(name, known)}")


def channel_section(name: str) -> str:
    """Return the heading of a channel's section; TOML needs quotes around some names."""
    quoted = name if name.replace("-", "_").isidentifier() else f'"{name}"'
    return f"[notify.channel.{quoted}]"


def _wrong_url(url: Any) -> str | None:
    """Return why a text is no URL to send to, None if it is one. It may be a secret, so it is not shown."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - a firing does not come here

    wanted = "write https://HOST/PATH or http://HOST/PATH"
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        return f"this is not a URL; {wanted}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    return None if usable else f"this is not a URL; {wanted}"
