"""A command that runs a job once per tick, such as `run`: the options that it takes, and which exclude others.

What reads a command line without carrying it out asks for it, such as lint (`oncecron.plugins.job_command`).
"""

from __future__ import annotations

from oncecron.config.options import RUN_OPTION
from oncecron.config.rules import conflicts
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from oncecron.config.options import Option
    from oncecron.config.rules import Conflict


class JobCommand(NamedTuple):
    """One of the commands."""

    name: str
    options: Mapping[str, Option]
    """Those that it takes, by name."""
    defaults: tuple[Option, ...]
    """Those that it does not take, whose defaults `conflicts` asks for."""
    conflicts: Callable[..., Iterator[Conflict]]
    example: str
    """A short line that is right."""

    @property
    def shown(self) -> str:
        """The command as messages name it."""
        return f"`oncecron {self.name}`"


RUN = JobCommand("run", RUN_OPTION, (), conflicts, example="oncecron run --key NAME -- COMMAND")
