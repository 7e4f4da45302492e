"""The table of what people type that oncecron does not have: no entry is in vain, and each names what there is."""

import re

import pytest
from command_tree import every_command

from oncecron.cli.meant import MEANT

COMMANDS = every_command()
OF_THE_LINE = {typed: cure for typed, cure in MEANT.items() if typed.startswith("oncecron ")}


def options(command: str) -> set[str]:
    return {f"--{option.name}" for option in COMMANDS[command].table}


@pytest.mark.parametrize("typed", OF_THE_LINE)
def test_what_is_typed_does_not_exist(typed: str) -> None:
    """Neither as a command nor as an option: the entry would not be read."""
    command, _, word = typed.removeprefix("oncecron ").rpartition(" ")
    if word.startswith("--"):
        assert word not in options(command)
    elif word == "WORD":
        assert command in COMMANDS
    else:
        assert f"{command} {word}".strip() not in COMMANDS


@pytest.mark.parametrize("cure", dict.fromkeys(OF_THE_LINE.values()))
def test_what_is_named_exists(cure: str) -> None:
    """Each command in backquotes, with its options."""
    for line in re.findall(r"`oncecron ([^`]+)`", cure):
        words = line.split()
        command = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), "")
        assert command or words[0] in ("COMMAND", "--version")
        named = {word for word in words if word.startswith("--") and word != "--"}
        assert not command or named <= options(command)
