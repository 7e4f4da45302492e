"""The entry point of `oncecron-shell`, the shell of a crontab (`SHELL=`): as cheap as that of `oncecron run`."""

from __future__ import annotations

from oncecron.__main__ import exit_after, run_parsed


def main() -> None:
    """Run a line, and exit at once."""
    exit_after(_run_line)


def _run_line(arguments: list[str]) -> int:
    from oncecron_crontab.shell import run_line  # noqa: PLC0415 - once imports are light

    return run_line(arguments, run_parsed)
