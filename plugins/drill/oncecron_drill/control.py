"""The control of a drill: a plain lock runs the same jobs under the same faults, and must be caught.

A drill that has found nothing says something only if it would have found it. So it begins with what is known to break:
a script of ten lines, on the same store. Nothing excuses it: any two jobs of a key that met count.
"""

from collections.abc import Sequence
from pathlib import Path

from oncecron_drill import history
from oncecron_drill.another_wrapper import Wrapper
from oncecron_drill.checker import check
from oncecron_drill.history import Control
from oncecron_drill.run_under_faults import Run
from oncecron_drill.strength import by_kind

SECONDS, LONGEST = 20.0, 60.0
"""How long it lasts, and at most, where nothing has been caught by then."""
_LOCK = Path(__file__).with_name("plain_lock.py")


def plain_lock(interpreter: Sequence[str]) -> Wrapper:
    """Return the plain lock as a wrapper like any other; `interpreter`: the words that start a script."""
    return Wrapper((*interpreter, str(_LOCK), "{key}", "{command}"), ("overlap",))


def have_met(journal: Path) -> bool:
    """Return whether a job has found another one of its key alive."""
    return any(b'"overlap"' in file.read_bytes() for file in journal.glob("*/*"))


def control(run: Run) -> Control:
    """Let a plain lock fire, and return what it shows."""
    run.strike()
    run.stop()
    shown = history.load(run.wanted.directory)
    verdict = check(shown)
    said = next((firing.stderr for firing in shown.firings if firing.status and firing.stderr), "")
    return Control(
        together=len([*verdict.violations, *verdict.holes]),
        faults=sum(count.hit for count in by_kind(shown).values()),
        starts=len(shown.starts),
        said=said.strip().rpartition("\n")[2],
    )
