"""A group of commands, whose modules are imported on first use, also of commands that are not installed or not ours."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from oncecron.cli.command import HelpfulCommand, UsageErrorWithCure, answer
from oncecron.cli.meant import MEANT
from oncecron.core.errors import ConfigurationError
from oncecron.core.suggestion import unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Listed(NamedTuple):
    """A command as the help of its group lists it. Its module is imported when it is used."""

    about: str
    module: str = ""
    """It has the command as `COMMAND`, or in its `COMMANDS`; empty: the module of that name in the group's package."""
    distribution: str = "oncecron"
    """What is installed to have it."""

    @property
    def is_installed(self) -> bool:
        """Whether its package is there."""
        return not self.module or find_spec(self.package) is not None

    @property
    def package(self) -> str:
        """The package that it is in."""
        return self.module.partition(".")[0]


class LazyGroup(HelpfulCommand, click.Group):
    """A group of commands, whose modules are imported on first use."""

    def __init__(
        self,
        name: str,
        sections: Mapping[str, Mapping[str, Listed]],
        package: str,
        *,
        about: str,
        others: Callable[[], Mapping[str, Listed]] = dict,
        **more: Any,
    ) -> None:
        """`sections`: commands by name, by heading of the help.

        `others`: find the commands that other packages bring. It is asked for the help, or for a name that is not ours.
        """
        super().__init__(name, help=about, no_args_is_help=False, **more)
        self.sections = sections
        self.names = {name: one for listed in sections.values() for name, one in listed.items()}
        self._package = package
        self._others = others
        self.otherwise = f"the commands are {', '.join(self.names)}"
        """The hint for a name that is similar to none of the commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of what is installed, in the order of the help."""
        return [name for name, listed in self.names.items() if listed.is_installed]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command. Raises `click.UsageError` if it is not installed."""
        listed = self._find(cmd_name)
        if listed is None:
            return None
        module = self._imported(cmd_name, listed)
        commands = getattr(module, "COMMANDS", {})
        command: click.Command = commands.get(cmd_name) or module.COMMAND
        command.short_help = listed.about
        return command

    def _find(self, name: str) -> Listed | None:
        return self.names.get(name) or self._others().get(name)

    def _imported(self, name: str, listed: Listed) -> Any:
        try:
            return importlib.import_module(listed.module or f"{self._package}.{name}")
        except Exception as error:
            if name not in self.names:
                raise ConfigurationError(
                    f"{name} of {listed.package} cannot be loaded: {error}; install {listed.package} again"
                ) from error
            if not isinstance(error, ModuleNotFoundError) or error.name != listed.package:
                raise
            from oncecron.host.installation import how_to_install  # noqa: PLC0415 - of no other command

            raise UsageErrorWithCure(
                f"`{self.name} {name}` is not installed; {how_to_install(listed.distribution)}"
            ) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that are installed, of which none is imported, and the options."""
        found = [
            CompletionItem(name, help=listed.about)
            for name, listed in {**self._others(), **self.names}.items()
            if name.startswith(incomplete) and listed.is_installed
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one. `help COMMAND` means `COMMAND --help`."""
        if args[0] == "help" and not ctx.resilient_parsing:
            if not args[1:]:
                answer(ctx, ctx.get_help())
            args = [args[1], *args[2:], "--help"]
        if not args[0].startswith("-") and self._find(args[0]) is None:
            raise UsageErrorWithCure(self._unknown(ctx, args[0]), ctx)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> str:
        if meant := MEANT.get(f"{ctx.command_path} {name}"):
            return f"unknown command {name!r}; {meant}"
        return unknown(
            "command",
            name,
            {**self._others(), **self.names},
            otherwise=self.otherwise,
            shown=lambda command: f"`{ctx.command_path} {command}`",
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands under their headings."""
        others = {name: one for name, one in self._others().items() if name not in self.names}
        for title, listed in {**self.sections, "Of other packages": others}.items():
            if listed:
                with formatter.section(title):
                    formatter.write_dl(
                        [(name, self._line(name, one)) for name, one in listed.items()]
                    )

    def _line(self, name: str, listed: Listed) -> str:
        if name not in self.names:
            return f"{listed.about} [{listed.package}]"
        missing = "" if listed.is_installed else f" [not installed: {listed.distribution}]"
        return f"{listed.about}{missing}"
