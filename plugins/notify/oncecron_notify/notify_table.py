"""The table [notify] of the configuration file: the channels of `oncecron notify`, and what is sent to them.

A firing of a job does not read it. What is wrong with a channel stops no other channel.
"""

from __future__ import annotations

from oncecron.config.file_reader import FileProblem, secret_in, url_in
from oncecron.config.options import Option, convert, is_key
from oncecron.config.ping_table import wrong_keys
from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.suggestion import not_one_of, unknown
from oncecron.host.local_time import offsets
from oncecron.watch.findings import (
    LONGEST_PATIENCE,
    OPTIONS,
    STATES,
    Limits,
    kinds,
    limits_of,
    states_of,
)
from oncecron_notify.channels import KINDS, Channel, Kind, url_of
from oncecron_notify.mail_server import NAMES as SERVER_NAMES
from oncecron_notify.mail_server import MailServer, server_of
from oncecron_notify.notify_times import (
    CHANNEL_TIMEOUT,
    LONGEST_CHANNEL_TIMEOUT,
    SHORTEST_REMINDER,
    USUAL_REMINDER,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any, TypeVar

    from oncecron.config.file import File

    Value = TypeVar("Value")

NOTIFY_KEY = "oncecron/notify"
"""The key of the pass: hosts claim it each minute, as they claim any job."""

PING = "ping_url"
"""The name of the ping among the channels; no channel can have it."""

_NEVER = "never"
_REMIND = Option(
    "remind", "duration", "", default=USUAL_REMINDER, choices=(_NEVER,), minimum=SHORTEST_REMINDER
)
_FOR = Option("for", "duration", "", default="0s", maximum=LONGEST_PATIENCE)
_TIMEOUT = Option("timeout", "duration", "", minimum=1, maximum=LONGEST_CHANNEL_TIMEOUT)
_TOP = {option.name: option for option in (_REMIND, *OPTIONS)}
_TARGETS = [
    name
    for target, kind in KINDS.items()
    for name in ((target, f"{target}_file") if kind.is_secret else (target,))
]


_OF_ALL = ("form", "keys", "findings", "states", "for", "tz", "timeout")
"""The names that every channel may set."""


class Notify(NamedTuple):
    """What `oncecron notify` sends, and where."""

    channels: tuple[Channel, ...]
    remind: float | None
    """Say again after this time that a finding is still there; None: never."""
    ping_url: str | None
    limits: Limits

    @property
    def names(self) -> list[str]:
        """Return what the store keeps documents of."""
        return [*(each.name for each in self.channels), PING]


def channel_names(file: File) -> list[str]:
    """Return the same of a file, also of channels that this user may not read in full."""
    tables = file.notify.get("channel")
    return [*(tables if isinstance(tables, dict) else ()), PING]


def read_notify(file: File) -> tuple[Notify, list[FileProblem]]:
    """Return what `parse_notify` does. Raises `ConfigurationError` without a channel.

    A mistake keeps the ping back, as a channel that fails does: its service tells that something is wrong.
    """
    notify, problems = parse_notify(file)
    if not notify.channels and problems:
        raise ConfigurationError(str(problems[0]))
    if not notify.channels:
        where = file.path or "the configuration file"
        raise ConfigurationError(
            f"no channel is configured; add a section [notify.channel.NAME] to {where}"
        )
    return notify._replace(ping_url=None) if problems else notify, problems


def parse_notify(file: File) -> tuple[Notify, list[FileProblem]]:
    """Return what a file sets, without what is wrong in it, and the problems."""
    reader = _Reader(file)
    table = dict(file.notify)
    tables = table.pop("channel", {})
    if not isinstance(tables, dict):
        reader.wrong("channel", "channel must be tables: [notify.channel.NAME]")
        tables = {}
    ping = reader.url(table, "ping_url")
    values = reader.values(table)
    limits = limits_of(values, reader.states(values))
    channels = filter(None, (reader.channel(name, each) for name, each in tables.items()))
    return Notify(tuple(channels), values["remind"], ping, limits), reader.problems


class _Reader:
    def __init__(self, file: File) -> None:
        self.problems: list[FileProblem] = []
        self._file = file
        keys = (NOTIFY_KEY,)
        self._place = FileProblem(file.path or "", "", "[notify]", keys=keys, stops=False)

    def wrong(self, name: str, reason: str) -> None:
        """Note a problem with a name of the table; an empty one: with the table."""
        self.problems.append(self._place._replace(text=reason, name=name))

    def values(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of [notify] itself."""
        found = {
            name: None if option.default is None else convert(option, option.default)
            for name, option in _TOP.items()
        }
        for key, value in table.items():
            name = key.replace("_", "-")
            if name in _TOP:
                converted = self._converted(_TOP[name], value)
                found[name] = None if converted == _NEVER else converted
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
        target = given[0].removesuffix("_file")
        kind = KINDS[target]
        value = (
            self.url(table, target)
            if kind.is_secret
            else self._read(target, kind.target, target, table.pop(target))
        )
        form = self._form(table, kind)
        keys = table.pop("keys", ["*"])
        if problem := wrong_keys(keys):
            self.wrong("keys", problem)
        findings = self._names(table, "findings", kinds())
        states = self._names(table, "states", STATES[1:])
        lasting = self._converted(_FOR, table.pop("for", _FOR.default))
        zone = table.pop("tz", None)
        if zone is not None:
            self._read("tz", _known_zone, zone)
        timeout = self._converted(_TIMEOUT, table.pop("timeout", CHANNEL_TIMEOUT))
        sender = self._sender(table) if kind.has_sender else None
        server = self._server(table, sender) if kind.has_sender else None
        of_mail = ("from", *SERVER_NAMES) if kind.has_sender else ()
        for other in table:
            self._unknown(other, (*_TARGETS, *of_mail, *_OF_ALL))
        if value is None or len(self.problems) > known:
            return None
        states = states or STATES[1:]
        return Channel(
            *(name, target, value, form, tuple(keys), timeout, sender, server),
            *(findings, states, lasting, zone),
        )

    def _names(self, table: dict[str, Any], name: str, known: Collection[str]) -> tuple[str, ...]:
        is_given = name in table
        given = table.pop(name, [])
        names = given if isinstance(given, list) else [given]
        for each in names:
            if not isinstance(each, str) or each not in known:
                self.wrong(name, f"{name}: {not_one_of(each, known)}")
                return ()
        if is_given and not names:
            self.wrong(name, f"{name} is empty; leave it out for all of them")
        return tuple(names)

    def url(self, table: dict[str, Any], name: str) -> str | None:
        """Take a URL out of a table: as it stands there, or from the file that is named there."""
        url, problem = url_in(table, name, self._place, self._file.mode)
        if problem:
            self.problems.append(problem)
        return None if problem or url is None else self._read(name, url_of, name, url)

    def _server(self, table: dict[str, Any], sender: str | None) -> MailServer | None:
        given = {name: table.pop(name) for name in SERVER_NAMES if name in table}
        if not given:
            return None
        password = None
        if "password_file" in given:
            password, problem = secret_in(given["password_file"], "password_file", self._place)
            if problem:
                self.problems.append(problem)
                return None
        try:
            return server_of(given, sender, password and password.rstrip("\r\n"))
        except ValueError as error:
            self.wrong(str(error).partition(":")[0], str(error))
            return None

    def _read(self, name: str, read: Callable[..., Value], *given: Any) -> Value | None:
        try:
            return read(*given)
        except (ValueError, ConfigurationError) as error:
            self.wrong(name, str(error))
            return None

    def _form(self, table: dict[str, Any], kind: Kind) -> str:
        form = table.pop("form", kind.forms[0])
        if form not in kind.forms:
            self.wrong("form", f"form: {not_one_of(form, kind.forms)}")
        return str(form)

    def _sender(self, table: dict[str, Any]) -> str | None:
        sender = table.pop("from", None)
        if sender is None or (isinstance(sender, str) and sender.strip() and sender.isprintable()):
            return sender
        self.wrong("from", "from must be a mail address")
        return None

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
        self.wrong(name, unknown("key", name, sorted(known)))


def _known_zone(zone: Any) -> None:
    if not isinstance(zone, str):
        raise ValueError(f"tz: {zone!r} is no name of a time zone, such as Europe/Berlin")  # noqa: TRY004
    offsets(zone)


def channel_section(name: str) -> str:
    """Return the heading of a channel's section; TOML needs quotes around some names."""
    quoted = name if name.replace("-", "_").isidentifier() else f'"{name}"'
    return f"[notify.channel.{quoted}]"
