"""`oncecron config`: commands for the configuration, which need no store."""

from __future__ import annotations

from oncecron.cli.command import LazyGroup

COMMAND = LazyGroup(
    "config",
    {"Commands": ("check", "show")},
    __name__,
    short="Check and show the configuration.",
    about="Check the configuration file, or show where each value comes from. These commands need no store.",
)
