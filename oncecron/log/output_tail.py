"""The end of what a run that went wrong has written, as `oncecron why` shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.core.errors import StoreError
from oncecron.core.log_rows import is_success
from oncecron.core.masking import without_logins
from oncecron.core.text import visible
from oncecron.log.job_summary import DOUBTFUL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncecron.core.log_rows import Execution
    from oncecron.core.model import Output
    from oncecron.log.tick_history import Facts
    from oncecron.stores.reader import Reader

_WELL = ("succeeded", "running", *DOUBTFUL)
_LINES = 20
_LONGEST_LINE = 500


def failed_run(facts: Facts, verdict: str) -> Execution | None:
    """Return the last run of a tick that went wrong; None if the tick did not."""
    runs = [each.execution for each in facts.executions] if verdict not in _WELL else []
    bad = (run for run in reversed(runs) if run.outcome not in _WELL and not is_success(run))
    return next(bad, None)


def captured(log: Reader, run: Execution | None) -> Output | None:
    """Return what --capture has recorded of a run; None also for a role that may not read it."""
    try:
        return log.output(run.execution_id) if run else None
    except StoreError:
        return None


def tail(output: Output, run: Execution, command: Callable[[str], str]) -> Iterator[str]:
    """Yield the last lines, below a heading; `command`: how to show `oncecron WORDS`, to be pasted."""
    lines = output.text.splitlines()
    if not lines:
        return
    last = lines[-_LINES:]
    is_whole = last == lines and not output.cut and max(map(len, lines)) <= _LONGEST_LINE
    more = "" if is_whole else f" (all that is kept: {command(f'history --id {run.execution_id}')})"
    yield f"{'Its' if is_whole else 'The end of its'} output{more}:"
    for line in last:
        shown = visible(without_logins(line))
        yield f"  | {shown if len(shown) <= _LONGEST_LINE else shown[: _LONGEST_LINE - 3] + '...'}"
