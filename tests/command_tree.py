"""Every command of oncecron by its name, behind that of its group."""

import click

from oncecron.cli import main
from oncecron.cli.command import TableCommand


def every_command(group: click.Group = main.ONCECRON, name: str = "") -> dict[str, TableCommand]:
    """Return the commands of a group and of the groups within."""
    found: dict[str, TableCommand] = {}
    context = click.Context(group, info_name="oncecron")
    for own_name in group.list_commands(context):
        one = group.get_command(context, own_name)
        if isinstance(one, click.Group):
            found |= every_command(one, f"{name}{own_name} ")
        else:
            assert isinstance(one, TableCommand)
            found[name + own_name] = one
    return found
