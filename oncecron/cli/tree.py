"""The tree of commands, as completion needs it: groups, and commands by their full names."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

import click

from oncecron.cli.command import TableCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncecron.config.options import Option


class Command(NamedTuple):
    """One command."""

    name: str
    """Behind that of its group, if it is in one."""
    about: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    """Fixed values of the argument."""
    files: bool
    """The argument is a file."""

    @property
    def last(self) -> str:
        """The name without that of the group."""
        return self.name.rpartition(" ")[2]

    @property
    def quoted(self) -> str:
        """The name as one word of a shell."""
        return shlex.quote(self.name)

    @property
    def valued(self) -> str:
        """The options that are followed by a value."""
        valued = [option for option in self.options if option.takes_value]
        short = [f"-{option.short}" for option in valued if option.short]
        return " ".join([f"--{option.name}" for option in valued] + short)


class Group(NamedTuple):
    """A group of commands; that of all has no name."""

    name: str
    about: str
    commands: list[Command]
    """Also those of groups within it."""
    top: list[Command | Group]

    @property
    def last(self) -> str:
        """The name without that of the group above."""
        return self.name.rpartition(" ")[2]

    def groups(self) -> list[Group]:
        """Return the groups within."""
        return [one for one in self.top if isinstance(one, Group)]


def group_of(
    group: click.Group, words: Mapping[click.Command, tuple[str, ...]], name: str = ""
) -> Group:
    """Return a click group as a tree; `words`: fixed values of a command's argument."""
    context = click.Context(group, info_name="oncecron")
    found: list[Command] = []
    top: list[Command | Group] = []
    for own_name in group.list_commands(context):
        command = group.get_command(context, own_name)
        full_name = f"{name} {own_name}".lstrip()
        if isinstance(command, click.Group):
            below = group_of(command, words, full_name)
            found += below.commands
            top.append(below)
        elif isinstance(command, TableCommand):
            files = any(
                isinstance(argument.metavar, str) and "FILE" in argument.metavar
                for argument in command.params
                if isinstance(argument, click.Argument)
            )
            about = command.get_short_help_str(100)
            found.append(Command(full_name, about, command.table, words.get(command, ()), files))
            top.append(found[-1])
    return Group(name, group.get_short_help_str(100), found, top)
