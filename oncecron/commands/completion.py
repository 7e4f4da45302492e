"""`oncecron completion`: scripts that complete commands, options and fixed values without starting Python.

They are made from the click commands and their option tables; the package carries the results, and a test
compares. Behind `run`'s options the job's own completion takes over.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

import click

from oncecron.commands import TableCommand
from oncecron.model import OUTCOMES, REFUSAL_REASONS
from oncecron.options import CONFIG, LOG, STORE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.options import Option

_VALUES = {
    STORE.name: ("local", "postgresql://", "sqlite:///"),
    LOG.name: ("postgresql://", "sqlite:///"),
    "outcome": tuple(dict.fromkeys((*OUTCOMES, *REFUSAL_REASONS))),
}
SHELLS = ("bash", "zsh", "fish")
FILES = {"bash": "oncecron.bash", "zsh": "_oncecron", "fish": "oncecron.fish"}
"""What the scripts are called below `completions` in the package."""


class _Command(NamedTuple):
    name: str
    about: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    """Fixed values of the argument."""

    @property
    def valued(self) -> str:
        """The options that are followed by a value."""
        return " ".join(f"--{option.name}" for option in self.options if option.takes_value)


def _commands(root: click.Group) -> list[_Command]:
    context = click.Context(root, info_name="oncecron")
    found = []
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        if isinstance(command, TableCommand):
            words = SHELLS if command is COMMAND else ()
            found.append(_Command(name, command.get_short_help_str(100), command.table, words))
    return found


def _values(option: Option) -> tuple[str, ...]:
    return option.choices or _VALUES.get(option.name, ())


def _short_help(option: Option) -> str:
    """Return the first part of an option's help."""
    text = option.help
    for end in (". ", ": ", "; ", " ("):
        text = text.partition(end)[0]
    return text.rstrip(".:")


# bash

_BASH = """\
# Completion of oncecron for bash, as `oncecron completion bash` prints it.

_oncecron() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local options= valued= words= at
    COMPREPLY=()
    # bash splits --format=json at the sign.
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W '@COMMANDS@ --help --version' -- "$word"))
        return
    fi
    case ${COMP_WORDS[1]} in
@CASES@
    *)
        return
        ;;
    esac
    if [[ ${COMP_WORDS[1]} == run ]]; then
        for ((at = 2; at < COMP_CWORD; at++)); do
            case ${COMP_WORDS[at]} in
            --)
                _oncecron_job $((at + 1))
                return
                ;;
            -*)
                if [[ " $valued " == *" ${COMP_WORDS[at]} "* ]]; then
                    ((at++))
                    [[ ${COMP_WORDS[at]} == = ]] && ((at++))
                fi
                ;;
            *)
                _oncecron_job $at
                return
                ;;
            esac
        done
    fi
    if [[ " $valued " == *" $before "* ]]; then
        case $before in
@VALUES@
        --config)
            compopt -o filenames 2>/dev/null
            COMPREPLY=($(compgen -f -- "$word"))
            ;;
        esac
        return
    fi
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options --help" -- "$word"))
    elif [[ ${COMP_WORDS[1]} == run ]]; then
        _oncecron_job $COMP_CWORD
    else
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}

# The command behind the options, which begins at word $1: by its own completion where bash-completion is there.
_oncecron_job() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
    else
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}

complete -F _oncecron oncecron
"""


def _bash(commands: list[_Command]) -> str:
    cases, values = [], {}
    for command in commands:
        every = [f"--{option.name}" for option in command.options]
        every += [f"-{option.short}" for option in command.options if option.short]
        cases += [
            f"    {command.name})",
            f"        options='{' '.join(every)}'",
            f"        valued='{command.valued}'",
            f"        words='{' '.join(command.words)}'",
            "        ;;",
        ]
        for option in command.options:
            if fixed := _values(option):
                values[option.name] = " ".join(fixed)
    alternatives = [
        f"        --{name}) COMPREPLY=($(compgen -W '{fixed}' -- \"$word\")) ;;"
        for name, fixed in values.items()
    ]
    return (
        _BASH.replace("@COMMANDS@", " ".join(command.name for command in commands))
        .replace("@CASES@", "\n".join(cases))
        .replace("@VALUES@", "\n".join(alternatives))
    )


# zsh

_ZSH = """\
#compdef oncecron
# Completion of oncecron for zsh, as `oncecron completion zsh` prints it.

_oncecron() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    local -a subcommands=(  # not `commands`: that is zsh's table of programs
@COMMANDS@
    )
    _arguments -C \\
        '(- *)'{-h,--help}'[show the help]' \\
        '(- *)--version[show the version]' \\
        '1: :->command' \\
        '*:: :->rest'
    case $state in
    command)
        _describe -t commands command subcommands
        ;;
    rest)
        case $words[1] in
@CASES@
        esac
        ;;
    esac
}

if [[ $funcstack[1] == _oncecron ]]; then
    _oncecron "$@"
else
    compdef _oncecron oncecron
fi
"""


def _zsh(commands: list[_Command]) -> str:
    cases = []
    for command in commands:
        lines = [
            f"            {spec}" for option in command.options for spec in [_zsh_spec(option)]
        ]
        lines.append("            '(- *)'{-h,--help}'[show the help]'")
        if command.name == "run":
            lines.append("            '(-)*:: : _normal'")
        elif command.words:
            lines.append(f"            '1: :({' '.join(command.words)})'")
        body = " \\\n".join(["            _arguments -S -s", *(f"    {line}" for line in lines)])
        cases.append(f"        {command.name})\n{body}\n            ;;")
    described = [f"        {shlex.quote(c.name + ':' + c.about.rstrip('.'))}" for c in commands]
    return _ZSH.replace("@COMMANDS@", "\n".join(described)).replace("@CASES@", "\n".join(cases))


def _zsh_spec(option: Option) -> str:
    about = _short_help(option)
    for sign in "\\[]:":
        about = about.replace(sign, "\\" + sign)
    names = f"--{option.name}"
    again = "*" if option.repeatable or option.kind == "count" else ""
    if not option.takes_value:
        if option.short:
            return f"'{again}'{{-{option.short},{names}}}" + shlex.quote(f"[{about}]")
        return shlex.quote(f"{again}{names}[{about}]")
    action = "_files" if option is CONFIG else " "
    if fixed := _values(option):
        action = "(" + " ".join(value.replace(":", "\\:") for value in fixed) + ")"
    return shlex.quote(f"{again}{names}=[{about}]:{option.metavar}:{action}")


# fish

_FISH = """\
# Completion of oncecron for fish, as `oncecron completion fish` prints it.

function __fish_oncecron_command
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]
end

complete -c oncecron -f
complete -c oncecron -s h -l help -d 'Show the help'
complete -c oncecron -n 'test (count (commandline -opc)) -eq 1' -l version -d 'Show the version'
"""


def _fish(commands: list[_Command]) -> str:
    return _FISH + "".join(f"complete -c oncecron {line}\n" for line in _fish_lines(commands))


def _fish_lines(commands: list[_Command]) -> Iterator[str]:
    for command in commands:
        about = _fish_quoted(command.about.rstrip("."))
        yield f"-n 'test (count (commandline -opc)) -eq 1' -a {command.name} -d {about}"
    for command in commands:
        only = f"-n '__fish_oncecron_command {command.name}'"
        for option in command.options:
            parts = [only, f"-l {option.name}"]
            if option.short:
                parts.insert(1, f"-s {option.short}")
            if option.takes_value:
                parts.append("-r -F" if option is CONFIG else "-x")
            if fixed := _values(option):
                parts.append(f"-a '{' '.join(fixed)}'")
            yield " ".join([*parts, f"-d {_fish_quoted(_short_help(option))}"])
        if command.words:
            yield f"{only} -a '{' '.join(command.words)}'"
        if command.name == "run":  # the lone dash ends the function's own options
            yield f"{only} -a '(__fish_complete_subcommand --fcs-skip=2 - {command.valued})'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def script(shell: str, root: click.Group) -> str:
    """Return the completion script of a shell for a group of commands."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](_commands(root))


def _print(_given: dict[str, str], words: list[str]) -> int:
    from oncecron import render  # noqa: PLC0415 - not for --help

    root = click.get_current_context().find_root().command
    assert isinstance(root, click.Group)  # noqa: S101 - for the type checker
    render.say(script(words[0], root), render.standard_output())
    return 0


COMMAND = TableCommand(
    "completion",
    (),
    _print,
    short="Print a completion script for a shell.",
    about="Print a completion script for bash, zsh or fish. bash: oncecron completion bash > "
    "~/.local/share/bash-completion/completions/oncecron",
    words=click.Argument(["words"], metavar="bash|zsh|fish", type=click.Choice(SHELLS)),
)
