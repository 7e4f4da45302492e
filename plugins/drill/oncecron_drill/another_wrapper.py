"""Another wrapper than oncecron, which fires the same jobs on the same hosts.

Nothing but its command line is known of it. So its attempts, shards and items are not judged, its log is not read, and
only those rules apply to it that read what the jobs wrote themselves.
"""

import dataclasses
import re
import shlex
import shutil
from collections.abc import Sequence

from oncecron.core.errors import UsageError
from oncecron.core.masking import masked_words
from oncecron_drill.generator import TTL, Key, Shot

OF_JOBS = ("overlap", "double", "orphan", "left", "blocked")
"""The rules that read what jobs wrote, by their names: see `checker.OF_JOBS`."""
LONGEST_LEASE = 60.0
"""Seconds after which the lock of a dead holder must be free, where nobody has said how long it lasts."""
_NAMES = ("key", "command", "tick", "proxy")
_PLACES = re.compile(r"(?<!\$)\{(\w+)\}")
"""`${name}` is the shell's."""
_BLANK = re.compile(r"\s|^$")


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """Its words, with places in them.

    `{key}` is the name of the lock, `{tick}` that of the tick, `{proxy}` the address by which this host reaches the
    lock's server, and `{command}` the job: its words where it stands alone, else its text, quoted for a shell.
    """

    words: Sequence[str]
    rules: Sequence[str] = OF_JOBS
    """What it promises, by the names of the rules; nothing else is judged."""
    lease: float = TTL
    """Seconds after which the lock of a dead holder is free."""

    @property
    def shown(self) -> str:
        """The command line as people read it, without a password."""
        words = masked_words(self.words)
        return " ".join(shlex.quote(word) if _BLANK.search(word) else word for word in words)

    def command(self, shot: Shot, job: Sequence[str], proxy: str = "") -> list[str]:
        """Return what cron would start."""
        places = {"key": shot.key.name, "tick": shot.tick or "", "proxy": proxy}
        places["command"] = shlex.join(job)
        found: list[str] = []
        for word in self.words:
            filled = _PLACES.sub(lambda place: places[place[1]], word)
            found += job if word == "{command}" else [filled]
        return found

    def environment(self, shot: Shot) -> dict[str, str]:
        """Return what oncecron would tell the job, and this wrapper cannot."""
        told = {"ONCECRON_KEY": shot.key.name, "ONCECRON_SHARD": "0", "ONCECRON_ATTEMPT": "1"}
        return told if shot.tick is None else {**told, "ONCECRON_TICK": shot.tick}

    def keys(self, keys: Sequence[Key]) -> list[Key]:
        """Return these keys with the same jobs, without what only options of oncecron do."""
        return [_plain(key) for key in keys if is_for_another(key)]


def _plain(key: Key) -> Key:
    rule = "name" if key.rule == "none" else key.rule
    return dataclasses.replace(key, run="", rule=rule, again=0.0, attempts=1, parts=1, fenced=False)


def is_for_another(key: Key) -> bool:
    """Return whether a key is more than an option of oncecron: not if it has items, or ticks of the host's clock."""
    return not key.items and not key.by_clock


def parse(text: str, *, is_proxied: bool) -> Wrapper:
    """Read a command line, split into words as a shell does, without its expansions. Raises `UsageError`."""
    words = _words(text)
    named = {name for word in words for name in _PLACES.findall(word)}
    if unknown := sorted(named.difference(_NAMES)):
        known = ", ".join(f"{{{name}}}" for name in _NAMES)
        raise UsageError(f"--wrapper: unknown place {{{unknown[0]}}}; it may have {known}")
    if "command" not in named:
        raise UsageError(
            "--wrapper: it has no {command}, so that no job would run; write {command} where the job goes"
        )
    if "key" not in named:
        raise UsageError(
            "--wrapper: it has no {key}, so that all keys would share one lock; write {key} in its name"
        )
    if "proxy" in named and not is_proxied:
        raise UsageError(
            "--wrapper: {proxy} needs --proxy HOST:PORT, the address of the lock's server"
        )
    if is_proxied and "proxy" not in named:
        raise UsageError(
            "--proxy: the wrapper has no {proxy}; write {proxy} in place of the server's address"
        )
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"--wrapper: {words[0]!r} is no command that can be executed here; write its path"
        )
    rules = ("overlap", *(("double",) if "tick" in named else ()), "left", "blocked")
    return Wrapper(words, rules, LONGEST_LEASE)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--wrapper: {text!r} cannot be split into words: {error}") from error
    if not words:
        raise UsageError(
            "--wrapper: it is empty; write a command such as 'flock -n /tmp/{key} {command}'"
        )
    return words
