"""`oncecron completion`: scripts that complete commands, options and fixed values without starting Python.

They are made from the click commands and their option tables; the package carries the results, and a test
compares. Behind `run`'s options the job's own completion takes over.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from oncecron.cli.command import TableCommand
from oncecron.cli.tree import Command, Group, group_of
from oncecron.config.options import CONFIG, LOG, STORE
from oncecron.core.model import OUTCOMES, REFUSAL_REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.config.options import Option

_VALUES = {
    STORE.name: ("local", "postgresql://", "redis://", "rediss://", "sqlite:///"),
    LOG.name: ("postgresql://", "sqlite:///"),
    "outcome": tuple(dict.fromkeys((*OUTCOMES, *REFUSAL_REASONS))),
}
SHELLS = ("bash", "zsh", "fish")
FILES = {"bash": "oncecron.bash", "zsh": "_oncecron", "fish": "oncecron.fish"}
"""What the scripts are called below `completions` in the package."""


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
    local options= valued= words= files= at
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
    local command=${COMP_WORDS[1]}
    case $command in
@GROUPS@
    esac
    case $command in
@CASES@
    *)
        return
        ;;
    esac
    if [[ $command == run ]]; then
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
    elif [[ $command == run ]]; then
        _oncecron_job $COMP_CWORD
    elif [[ -n $files ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
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
_BASH_GROUP = """\
    @NAME@)
        if ((COMP_CWORD == 2)); then
            COMPREPLY=($(compgen -W '@NAMES@ --help' -- "$word"))
            return
        fi
        command+=" ${COMP_WORDS[2]}"
        ;;"""


def _bash(root: Group) -> str:
    cases, values = [], {}
    for command in root.commands:
        every = [f"--{option.name}" for option in command.options]
        every += [f"-{option.short}" for option in command.options if option.short]
        cases += [
            f"    {command.quoted})",
            f"        options='{' '.join(every)}'",
            f"        valued='{command.valued}'",
            f"        words='{' '.join(command.words)}'",
            *(["        files=yes"] if command.files else []),
            "        ;;",
        ]
        for option in command.options:
            if fixed := _values(option):
                values[option.name] = " ".join(fixed)
    alternatives = [
        f"        --{name}) COMPREPLY=($(compgen -W '{fixed}' -- \"$word\")) ;;"
        for name, fixed in values.items()
    ]
    groups = [
        _BASH_GROUP.replace("@NAME@", group.name).replace(
            "@NAMES@", " ".join(one.last for one in group.top)
        )
        for group in root.groups()
    ]
    return (
        _BASH.replace("@COMMANDS@", " ".join(one.last for one in root.top))
        .replace("@GROUPS@", "\n".join(groups))
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
        local command=$words[1]
        case $command in
@GROUPS@
        esac
        case $command in
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


_ZSH_GROUP = """\
        @NAME@)
            if (( CURRENT == 2 )); then
                subcommands=(
@COMMANDS@
                )
                _describe -t commands command subcommands
                return
            fi
            command+=" $words[2]"
            shift words
            (( CURRENT-- ))
            ;;"""


def _zsh(root: Group) -> str:
    cases = []
    for command in root.commands:
        lines = [
            f"            {spec}" for option in command.options for spec in [_zsh_spec(option)]
        ]
        lines.append("            '(- *)'{-h,--help}'[show the help]'")
        if command.name == "run":
            lines.append("            '(-)*:: : _normal'")
        elif command.words:
            lines.append(f"            '1: :({' '.join(command.words)})'")
        elif command.files:
            lines.append("            '1: :_files'")
        body = " \\\n".join(["            _arguments -S -s", *(f"    {line}" for line in lines)])
        cases.append(f"        {command.quoted})\n{body}\n            ;;")
    groups = [
        _ZSH_GROUP.replace("@NAME@", group.name).replace("@COMMANDS@", _zsh_described(group, 20))
        for group in root.groups()
    ]
    return (
        _ZSH.replace("@COMMANDS@", _zsh_described(root, 8))
        .replace("@GROUPS@", "\n".join(groups))
        .replace("@CASES@", "\n".join(cases))
    )


def _zsh_described(group: Group, indent: int) -> str:
    described = [shlex.quote(f"{one.last}:{one.about.rstrip('.')}") for one in group.top]
    return "\n".join(" " * indent + text for text in described)


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
    what = f"[{about}]:{option.metavar}:{action}"
    if option.short:
        return f"'(-{option.short} {names})'{{-{option.short}+,{names}=}}" + shlex.quote(what)
    return shlex.quote(f"{again}{names}={what}")


# fish

_FISH = """\
# Completion of oncecron for fish, as `oncecron completion fish` prints it.

function __fish_oncecron_command
    set -l words (commandline -opc)
    set -l last (math (count $argv) + 1)
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end

complete -c oncecron -f
complete -c oncecron -s h -l help -d 'Show the help'
complete -c oncecron -n 'test (count (commandline -opc)) -eq 1' -l version -d 'Show the version'
"""


def _fish(root: Group) -> str:
    return _FISH + "".join(f"complete -c oncecron {line}\n" for line in _fish_lines(root))


def _fish_lines(root: Group) -> Iterator[str]:
    for group in (root, *root.groups()):
        for one in group.top:
            about = _fish_quoted(one.about.rstrip("."))
            here = f"test (count (commandline -opc)) -eq {len(group.name.split()) + 1}"
            here += f"; and __fish_oncecron_command {group.name}" if group.name else ""
            yield f"-n '{here}' -a {one.last} -d {about}"
    for command in root.commands:
        for rest in _fish_rests(command):
            yield f"-n '__fish_oncecron_command {command.name}' {rest}"


def _fish_rests(command: Command) -> Iterator[str]:
    """Yield what is completed behind a command."""
    for option in command.options:
        parts = [f"-s {option.short}"] if option.short else []
        parts.append(f"-l {option.name}")
        if option.takes_value:
            parts.append("-r -F" if option is CONFIG else "-x")
        if fixed := _values(option):
            parts.append(f"-a '{' '.join(fixed)}'")
        yield " ".join([*parts, f"-d {_fish_quoted(_short_help(option))}"])
    if command.files:
        yield "-F"
    if command.words:
        yield f"-a '{' '.join(command.words)}'"
    if command.name == "run":  # the lone dash ends the function's own options
        yield f"-a '(__fish_complete_subcommand --fcs-skip=2 - {command.valued})'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def script(shell: str, root: click.Group) -> str:
    """Return the completion script of a shell for a group of commands."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](group_of(root, {COMMAND: SHELLS}))


def _print(_given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output  # noqa: PLC0415 - not for --help

    root = click.get_current_context().find_root().command
    assert isinstance(root, click.Group)  # noqa: S101 - for the type checker
    output.say(script(words[0], root), output.standard_output())
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
