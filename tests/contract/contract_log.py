"""What people read of a store, in the contract suite."""

from servers import eventually

from oncecron.core.log_rows import Execution, HistoryQuery, LeaseView, Skip
from oncecron.core.model import Retention
from oncecron.stores.reader import Reader


class Log:
    """What people read."""

    def __init__(self, people: Reader) -> None:
        self.people = people
        self._prune = people.prune
        people.prune = self._prune_as_said  # type: ignore[method-assign]

    def _prune_as_said(self, retention: Retention, *, names_kept: int = 1000) -> tuple[int, int]:
        """Prune, and check that a dry run said so before, twice: it has removed nothing."""
        said = [self._prune(retention, names_kept=names_kept, dry_run=True) for _ in range(2)]
        removed = self._prune(retention, names_kept=names_kept)
        assert said == [removed, removed]
        return removed

    def executions(self, query: HistoryQuery | None = None) -> list[Execution]:
        return list(self.people.history(query or HistoryQuery()))

    def exhausted(self) -> list[Execution]:
        return self.executions(HistoryQuery(exhausted=True))

    def notes(self) -> list[str]:
        """Return the notes, the oldest execution first; empty where there is none."""
        return [execution.note or "" for execution in reversed(self.executions())]

    def newest(self) -> Execution:
        return self.executions()[0]

    def outcomes(self) -> list[str]:
        return [execution.outcome for execution in reversed(self.executions())]

    def skips(self) -> list[Skip]:
        return list(self.people.skips(HistoryQuery()))

    def leases(self) -> list[LeaseView]:
        """Return all leases, without the time at which they were asked for."""
        return [lease._replace(asked_at=0.0) for lease in self.people.leases()]

    def none_held(self) -> bool:
        """Return whether no lease is left, nor the lock of a session of PostgreSQL, which takes a moment to end."""
        return eventually(lambda: not self.leases())

    def counts(self) -> dict[str, int]:
        return {skip.reason: skip.count for skip in self.skips()}
