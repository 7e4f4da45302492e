"""The commands that run a job once per tick, `run` and `each`: the options that each takes, and which exclude others.

What reads a command line without carrying it out looks here: lint, completion.
"""

from __future__ import annotations

from oncecron.config.options import RUN_OPTIONS
from oncecron.config.rules import conflicts, each_conflicts
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron_each.options import EACH_OPTIONS, ONLY_IN_RUN

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


def _by_name(options: tuple[Option, ...]) -> Mapping[str, Option]:
    return {option.name: option for option in options}


JOB_COMMAND: Mapping[str, JobCommand] = {
    "run": JobCommand(
        *("run", _by_name(RUN_OPTIONS), (), conflicts), example="oncecron run --key NAME -- COMMAND"
    ),
    "each": JobCommand(
        *("each", _by_name(EACH_OPTIONS), ONLY_IN_RUN, each_conflicts),
        example="oncecron each --key NAME --items LIST -- COMMAND",
    ),
}
"""The commands by name: `JOB_COMMANDS`."""
RUN = JOB_COMMAND["run"]
