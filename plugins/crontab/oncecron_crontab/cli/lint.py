"""`oncecron crontab lint`: find lines that run twice, nowhere or at another time."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import JSON, TableCommand
from oncecron.config.file import read_file
from oncecron.config.file_reader import read_private
from oncecron.config.options import CONFIG, Option
from oncecron.core.errors import EX_FOUND, ConfigurationError
from oncecron.core.masking import valid
from oncecron.core.text import visible
from oncecron.host.names import user_name
from oncecron.host.stderr import complain
from oncecron_crontab.cli.files import STANDARD_INPUT, in_directory, read_source
from oncecron_crontab.cli.installed import CRON, chosen_cron
from oncecron_crontab.cli.rewriting import USER_FIELD, refuse_wrong_kind
from oncecron_crontab.crons import CRONS
from oncecron_crontab.lint import LintedCrontab, lint
from oncecron_crontab.scanner import scan

if TYPE_CHECKING:
    from oncecron_crontab.crons import Cron
    from oncecron_crontab.lint import Diagnostic


OPTIONS = (
    Option(
        "require-guard", "flag", "Report every line without oncecron and without `# oncecron: off` above it. Without "
        "this option, report them only in files that use oncecron.",
    ),
    Option(
        "compare", "flag",
        "Compare the files as crontabs of several hosts. Files with the same name are always compared.",
    ),
    CRON,
    USER_FIELD,
    JSON._replace(help="Print all fields as JSON (one array) instead of lines.", group="Options"),
    CONFIG._replace(group="Options"),
)  # fmt: skip


def _lint(given: dict[str, str], words: list[str]) -> int:
    cron = chosen_cron(given) or CRONS["debian"]
    file = read_file(given.get("config"))
    if wrong := next((problem for problem in file.problems if problem.stops), None):
        raise ConfigurationError(str(wrong))
    named = list(dict.fromkeys(_files(words, system="user-field" in given) or [""]))
    own = given.get("config")
    found = lint(
        [_source(word, cron, system="user-field" in given) for word in named],
        file.jobs,
        required="require-guard" in given,
        compared="compare" in given,
        cron=cron,
        configuration=(own, read_private(own, "configuration file")[0]) if own else None,
    )
    stream = output.standard_output()
    if "json" in given:
        output.write_text(
            output.json_text([_as_utf8(diagnostic)._asdict() for diagnostic in found], 1), stream
        )
    elif found:
        output.say("\n".join(map(_shown, found)), stream)
    elif stream.isatty():
        complain("no problems found")
    return EX_FOUND if found else 0


def _source(word: str, cron: Cron, *, system: bool) -> LintedCrontab:
    """Read a crontab; an empty word means standard input. Raises `InputError`, `UsageError`."""
    file = read_source([word] if word else [], "lint")
    crontab = scan(file.data, system=system or file.is_system, cron=cron)
    refuse_wrong_kind(crontab, file)
    user = user_name() if file.path == STANDARD_INPUT else file.owner
    return LintedCrontab(word or STANDARD_INPUT, crontab, user, file.not_read())


def _files(words: list[str], *, system: bool) -> list[str]:
    """Return the named files, and those of named directories, also if cron does not read them. Raises `InputError`."""
    found: list[str] = []
    for word in words:
        directory = in_directory(word, system=system)
        found += [word] if directory is None else sorted(chain(*directory))
    return found


def _shown(finding: Diagnostic) -> str:
    return visible(
        f"{finding.file}:{finding.line}: {finding.message}; {finding.cure} [{finding.finding}]"
    )


def _as_utf8(finding: Diagnostic) -> Diagnostic:
    return finding._replace(
        file=valid(finding.file), message=valid(finding.message), cure=valid(finding.cure)
    )


COMMAND = TableCommand(
    "lint", OPTIONS, _lint,
    about="Find lines that run on every host, lines that are only partly protected, wrong keys and schedules, "
    "misleading fields, and differences between the crontabs of several hosts. Print one line per finding: "
    "FILE:LINE: problem; cure. Exit with status 1 if there is any.",
    examples=(
        "crontab -l | oncecron crontab lint",
        "oncecron crontab lint /etc/cron.d/*",
        "oncecron crontab lint web1/crontab web2/crontab",
    ),
    words="[FILE|DIRECTORY]...",
)  # fmt: skip
