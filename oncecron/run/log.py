"""The separate log store of a firing, if it has one (`--log`)."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from oncecron.run.log_mirror import LogMirror
    from oncecron.run.spec import RunSpec


class NoLog:
    """What a firing without a log store reports to."""

    def send(self, record: dict[str, Any]) -> None:
        """Drop a record."""

    def hold(self) -> None:
        """Do nothing."""

    def resume(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def open_log(spec: RunSpec) -> LogMirror | NoLog:
    """Return what takes the records for the log store."""
    if spec.log is None:
        return NoLog()
    from oncecron.run.log_mirror import LogMirror  # noqa: PLC0415 - few firings have a log store

    return LogMirror(spec, spec.log)
