"""The `[[ping]]` tables of the configuration file: which monitoring services are pinged for which keys.

A URL of a monitoring service is a secret: who knows it can report successes that never were. So nothing here shows more
of it than its host.
"""

from __future__ import annotations

from oncecron.config.file_reader import url_in
from oncecron.config.options import KEY_LETTERS
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.masking import shown_url

if TYPE_CHECKING:
    from typing import Any

    from oncecron.config.file_reader import FileProblem

PING_TIMEOUT = 5.0
"""The limit for one try of a ping, from the look-up of the name to the answer: of `ping_url` of [notify] too."""
PING_PAUSE = 1.0
"""The pause before the second try of a ping: enough for a restart of the server's workers."""

SERVICES = ("healthchecks", "cronitor", "sentry", "webhook")
PLACEHOLDERS = ("{key}", "{shard}")
_NAMES = ("service", "url", "url_file", "keys")
_SCHEMES = ("https://", "http://")
_HOST_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:[]")
_SLUG_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
_ANY = "*"
_PATTERN_LETTERS = KEY_LETTERS | {_ANY}
_ALL = (_ANY,)


class Ping(NamedTuple):
    """A service that is pinged when a job starts and when it ends."""

    service: str
    """One of `SERVICES`."""
    url: str
    """With `PLACEHOLDERS`."""
    keys: tuple[str, ...] = _ALL
    """Keys; `*` in them stands for any characters."""

    def is_for(self, key: str) -> bool:
        """Return whether the service is pinged for a key."""
        return any(is_like(key, pattern) for pattern in self.keys)

    def url_of(self, key: str, shard: int) -> str:
        """Return the URL for a key and a shard.

        Services take only lower-case letters, digits, `-` and `_` in the name of a monitor (the slug of healthchecks
        and of Sentry), so each other letter of a key is `-` there.
        """
        name = "".join(letter if letter in _SLUG_LETTERS else "-" for letter in key.lower())
        return self.url.replace("{key}", name).replace("{shard}", str(shard))

    @property
    def shown(self) -> str:
        """The service and its host: the rest of a URL is secret."""
        return f"{self.service} {shown_url(self.url)}"


def read_pings(
    tables: Any, place: FileProblem, mode: int
) -> tuple[tuple[Ping, ...], list[FileProblem]]:
    """Return the services of the `[[ping]]` tables without those that are wrong, and what is wrong with these.

    `place`: a problem of the file without its text; `mode`: the permissions of the file.
    """
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        why = "ping must be an array of tables: [[ping]]"
        return (), [place._replace(text=why, name="ping")]
    pings, problems = [], []
    for number, table in enumerate(tables, 1):
        section = "[[ping]]" if len(tables) == 1 else f"[[ping]] {number}"
        ping, wrong = _read(dict(table), place._replace(section=section), mode)
        problems += wrong
        if not wrong:
            pings.append(ping)
    return tuple(pings), problems


def _read(table: dict[str, Any], place: FileProblem, mode: int) -> tuple[Ping, list[FileProblem]]:
    wrong: list[FileProblem] = []
    for name in sorted(table.keys() - set(_NAMES)):
        from oncecron.core.suggestion import unknown  # noqa: PLC0415 - for an error message alone

        wrong.append(place._replace(text=unknown("key", name, _NAMES), name=name))
    service = table.get("service")
    if service not in SERVICES:
        from oncecron.core.suggestion import not_one_of  # noqa: PLC0415 - for an error message alone

        every = f"service must be one of {', '.join(SERVICES)}"
        why = f"service: {not_one_of(service, SERVICES)}" if "service" in table else every
        wrong.append(place._replace(text=why, name="service"))
    url, problem = url_in(table, "url", place, mode)
    if problem:
        wrong.append(problem)
    elif wrong_url := _wrong_url(url):
        wrong.append(place._replace(text=wrong_url, name="url"))
    keys = table.get("keys", list(_ALL))
    if in_keys := wrong_keys(keys):
        return Ping("", ""), [*wrong, place._replace(text=in_keys, name="keys")]
    return Ping(str(service), url or "", tuple(keys)), wrong


def _wrong_url(url: Any) -> str | None:
    if not isinstance(url, str) or not _is_url(url):
        return "url must be an address such as https://HOST/PATH, without blanks; copy it from the service"
    for placeholder in PLACEHOLDERS:
        url = url.replace(placeholder, "")
    if "{" in url or "}" in url:
        return f"url: unknown placeholder; known ones are {' and '.join(PLACEHOLDERS)}"
    return None


def _is_url(url: str) -> bool:
    scheme, host = _place(url)
    name, colon, port = host.rpartition(":")
    has_port = bool(colon) and not port.endswith("]")  # [2001:db8::1] has none
    name = name if has_port else host
    return (
        scheme != ""
        and all("!" <= letter <= "~" for letter in url)
        and name != ""
        and _HOST_LETTERS.issuperset(name)
        and (not has_port or (port.isdecimal() and int(port) < 1 << 16))
    )


def _place(url: str) -> tuple[str, str]:
    scheme = next(filter(url.startswith, _SCHEMES), "")
    rest = url[len(scheme) :]
    for end in "/?#":
        rest = rest.partition(end)[0]
    return scheme, rest.rpartition("@")[2]


def is_like(key: str, pattern: str) -> bool:
    """Return whether a key has the form of a pattern; `fnmatch` would cost a firing the import of `re`."""
    first, *parts = pattern.split(_ANY)
    if not parts:
        return key == pattern
    *middle, last = parts
    end = len(key) - len(last)
    at = len(first)
    if at > end or not key.startswith(first) or not key.endswith(last):
        return False
    for part in middle:
        found = key.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def wrong_keys(keys: Any) -> str | None:
    """Return what is wrong with patterns of keys."""
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        return 'keys must be a list of keys or patterns, such as ["billing-*"]'
    for key in keys:
        if not key or not _PATTERN_LETTERS.issuperset(key):
            return f"keys: no job can have a key such as {key!r}"
    return None
