"""`oncecron crontab`: commands on crontabs, which need no store."""

from __future__ import annotations

from oncecron.commands import LazyGroup

COMMAND = LazyGroup(
    "crontab",
    ("wrap", "unwrap", "lint"),
    __name__,
    short="Guard the lines of a crontab, take the guards off, find what is unsafe.",
    about="Make a crontab safe to be the same on every host. These commands ask no store and install nothing: they "
    "read a file or standard input, and write standard output unless they are told --in-place.",
)
