"""Patched copies of the installed package: there is no hook for them in the product.

A change replaces an exact text of a file, which must be there once, by another. The copy has a console script of
its own; PostgreSQL's functions are those of whoever installed the schema, so that a mutation of them must be told
by `oncecron init` of the copy, in an empty database.
"""

import compileall
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

INSTALLED = Path(sysconfig.get_path("purelib")) / "oncecron"
CONSOLE_SCRIPT = Path(sys.executable).with_name("oncecron")


class DoesNotApplyError(Exception):
    """The text that a mutation changes is not in the product any more."""


@dataclass(frozen=True)
class Change:
    """Other words in one file of the package."""

    file: str
    """From the package on; a plugin stands beside it (`../oncecron_each/...`)."""
    old: str
    """Is there exactly once."""
    new: str

    def apply(self, package: Path) -> None:
        """Change the file; raises `DoesNotApplyError`."""
        path = package / self.file
        text = path.read_text() if path.exists() else ""
        if text.count(self.old) != 1:
            raise DoesNotApplyError(
                f"oncecron/{self.file} has {text.count(self.old)} times, not once: {self.old!r}"
            )
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Mutation:
    """One promise broken."""

    name: str
    breaks: str
    """What is done wrong, and which promise falls."""
    stores: tuple[str, ...]
    """Where it applies; first where it shows soonest."""
    shows: tuple[str, ...]
    """Words in the names of the nemesis' faults that make it show; none where it shows without."""
    changes: tuple[Change, ...]


def copy(mutation: Mutation, to: Path) -> Path:
    """Make the mutated copy, plugins too, in a new directory; return its console script. Raises `DoesNotApplyError`."""
    for init in INSTALLED.parent.glob("oncecron*/__init__.py"):
        package = init.parent
        shutil.copytree(package, to / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for change in mutation.changes:
        change.apply(to / INSTALLED.name)
    # As the installation does: without bytecode a firing's imports cost 2.4 times as much.
    if not compileall.compile_dir(to, quiet=1):
        raise SyntaxError(f"the mutation {mutation.name} does not compile")
    return _console_script(to)


def _console_script(to: Path) -> Path:
    """Write the installed console script once more, with the copy ahead of the installed package."""
    imports = "from oncecron.__main__ import main"
    text = CONSOLE_SCRIPT.read_text()
    if text.count(imports) != 1:
        raise DoesNotApplyError(f"{CONSOLE_SCRIPT} has not once: {imports}")
    script = to / "bin" / "oncecron"
    script.parent.mkdir()
    script.write_text(
        text.replace(imports, f"import sys\nsys.path.insert(0, {str(to)!r})\n{imports}")
    )
    script.chmod(0o755)
    return script
