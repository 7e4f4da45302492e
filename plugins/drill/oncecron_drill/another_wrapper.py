"""Another wrapper than oncecron, which fires the same jobs on the same hosts.

Nothing but its command line is known of it. So it gets no ticks, attempts, shards or items, its log is not read, and
only those rules apply to it that read what the jobs wrote themselves.
"""

import dataclasses
import shlex
from collections.abc import Sequence

from oncecron_drill.generator import Key, Shot

OF_JOBS = ("overlap", "double", "orphan", "left", "blocked")
"""The rules that read what jobs wrote, by their names: see `checker.OF_JOBS`."""


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """Its words; in each, `{key}` is the name of the lock, and `{command}` the job."""

    words: Sequence[str]
    rules: Sequence[str] = OF_JOBS
    """What it promises, by the names of the rules; nothing else is judged."""

    def command(self, key: str, job: Sequence[str]) -> list[str]:
        """Return what cron would start; a word `{command}` becomes the words of the job."""
        found: list[str] = []
        for word in self.words:
            filled = word.replace("{key}", key).replace("{command}", shlex.join(job))
            found += job if word == "{command}" else [filled]
        return found

    def environment(self, shot: Shot) -> dict[str, str]:
        """Return what oncecron would tell the job, and this wrapper cannot."""
        told = {"ONCECRON_KEY": shot.key.name, "ONCECRON_SHARD": "0", "ONCECRON_ATTEMPT": "1"}
        return told if shot.tick is None else {**told, "ONCECRON_TICK": shot.tick}

    def keys(self, keys: Sequence[Key]) -> list[Key]:
        """Return these keys with the same jobs, without what only options of oncecron do."""
        return [dataclasses.replace(key, run="", again=0.0, attempts=1, parts=1) for key in keys]
