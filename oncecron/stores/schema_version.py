"""Which programs the schema of a store serves, and the steps that upgrade it.

A schema records its version and the oldest version of a program that it serves: an upgrade keeps what programs of the
version before need, so that hosts are upgraded after it in any order, while jobs run. A program that is not served
claims nothing. `oncecron init` alone upgrades: it runs the numbered steps that are missing, whole or not at all.
"""

from __future__ import annotations

import os

from oncecron import __version__
from oncecron.core.errors import StoreRefusesError
from oncecron.core.light_typing import NamedTuple


class Recorded(NamedTuple):
    """What a schema says about itself."""

    version: int
    oldest: int | None = None
    """The oldest version of a program that it serves; None: its own version alone."""


def serves(schema: Recorded, program: int) -> bool:
    """Return whether a program, which is written for a version of the schema, may use the schema."""
    return (schema.oldest or schema.version) <= program <= schema.version


def misfit(where: str, schema: Recorded, program: int, init: str) -> StoreRefusesError:
    """Return the error of a program that a schema does not serve, or that is too old to upgrade it.

    `init`: who has to run which command to upgrade the schema.
    """
    version = schema.version
    if program > version:
        return StoreRefusesError(
            f"{where}: the schema has version {version}, and oncecron {__version__} on this host needs version "
            f"{program}; {init} of this release"
        )
    return StoreRefusesError(
        f"{where}: the schema has version {version}, and oncecron {__version__} on this host is for version {program}; "
        "upgrade oncecron on this host"
    )


def steps(directory: str) -> dict[int, str]:
    """Return the texts of the steps in a directory, such as `0002_what.sql`, by the version that each leads to."""
    found = {}
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        number = name.partition("_")[0]
        if number.isdigit():
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                found[int(number)] = file.read()
    return found


def missing(where: str, schema: Recorded, program: int, directory: str) -> list[str]:
    """Return the steps from a schema's version to a program's, in order; none if it has that version.

    Raises `StoreRefusesError` for a schema that is newer, or too old for the steps that there are.
    """
    if schema.version > program:
        raise misfit(where, schema, program, "")
    found = steps(directory)
    wanted = range(schema.version + 1, program + 1)
    if not all(number in found for number in wanted):
        raise StoreRefusesError(
            f"{where}: oncecron {__version__} cannot upgrade the schema from version {schema.version}; "
            "run `oncecron init` of an earlier release first"
        )
    return [found[number] for number in wanted]
