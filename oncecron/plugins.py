"""Where the core and its plugins meet: what a plugin brings to people's commands, and which plugins there are.

A plugin is a package with a `Plugin`. Ours have it as the `PLUGIN` of their module `plugin`; that of any other package
is found by its entry point in the group `oncecron.commands`. The core asks the installed ones, and knows none of them;
a firing asks nobody.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oncecron.config.job_commands import RUN
from oncecron.config.options import JOB_COMMANDS
from oncecron.core.stderr import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from oncecron.cli.group import Listed
    from oncecron.config.file import File
    from oncecron.config.file_reader import FileProblem
    from oncecron.config.job_commands import JobCommand
    from oncecron.config.settings import Settings
    from oncecron.core.diagnosis import Diagnosis
    from oncecron.core.log_rows import ConfiguredValue, Execution
    from oncecron.log.audit import Question
    from oncecron.log.protocol import Finding
    from oncecron.log.sources import Sources
    from oncecron.stores.reader import Reader
    from oncecron.watch.findings import Finding as Wrong
    from oncecron.watch.findings import Kind

_PLUGINS = ("oncecron_crontab", "oncecron_each", "oncecron_notify")
"""The packages of our own plugins that have a `Plugin`."""
_GROUP = "oncecron.commands"


class Work(Protocol):
    """How far the work of runs is, where it is divided further than oncecron's core knows."""

    def newest(self, key: str) -> str | None:
        """Return how far a key is, such as `12/40`; None: nothing is known."""

    def of_tick(self, key: str, tick: str) -> str | None:
        """Return how far the run of a tick is."""

    def is_settled(self, ended: Execution) -> bool:
        """Return whether an execution did not succeed, and nothing is left to do for all that."""


def _nothing(*_asked: Any) -> Iterable[Any]:
    return ()


class Plugin(NamedTuple):
    """What a plugin brings to people's commands. All of it is optional."""

    commands: Mapping[str, Listed] = {}
    """Its commands. Ours stand in the table of `cli.main`, and none of another package takes the place of one."""
    problems: Callable[[File], Iterable[FileProblem]] = _nothing
    """What is wrong with its tables of the configuration file: for `config check`, `check` and `doctor`."""
    values: Callable[[Settings, str | None], Iterable[ConfiguredValue]] = _nothing
    """What its tables set, for a key or at all: for `config show`."""
    job_command: JobCommand | None = None
    """A command that runs a job once per tick, for lint; `JOB_COMMANDS` has its name."""
    work: Callable[[Sources], Work] | None = None
    """For `jobs`, `locks`, `why` and all that judges keys."""
    kinds: Mapping[str, Kind] = {}
    """The kinds of its findings."""
    findings: Callable[[Sources, File], Iterable[Wrong]] = _nothing
    """What is wrong now: for `check`."""
    audited: Callable[[Question], Iterable[Finding]] = _nothing
    """What the log has of it: for `audit`."""
    host: Callable[[Settings], Iterable[Diagnosis]] = _nothing
    """What it needs of this host: for `doctor`."""
    store: Callable[[Settings, Reader], Iterable[Diagnosis]] = _nothing
    """What it needs of the store: for `doctor`."""
    prune: Callable[[Settings, Reader, bool], Iterable[str]] = _nothing
    """Remove what is old, or (True) count it; yield a sentence for each kind: for `prune`."""


@functools.cache
def plugins() -> tuple[Plugin, ...]:
    """Return what the installed plugins bring. One that cannot be loaded is left out, with a line on standard error."""
    return (*_ours(), *of_others())


def job_command(name: str) -> JobCommand | None:
    """Return a command that runs a job once per tick; None: no installed one has this name."""
    if name == RUN.name:
        return RUN
    brought = (each.job_command for each in plugins()) if name in JOB_COMMANDS else ()
    return next((each for each in brought if each and each.name == name), None)


def _ours() -> Iterator[Plugin]:
    for package in _PLUGINS:
        try:
            yield importlib.import_module(f"{package}.plugin").PLUGIN
        except ModuleNotFoundError as error:
            if error.name != package:
                _left_out(package, error, "oncecron")
        except Exception as error:  # noqa: BLE001 - the others, and the core, do what they can
            _left_out(package, error, "oncecron")


@functools.cache
def of_others() -> tuple[Plugin, ...]:
    """Return what other packages than ours bring."""
    return tuple(_of_others())


def _of_others() -> Iterator[Plugin]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 10 ms

    for entry in entry_points(group=_GROUP):
        try:
            yield _checked(entry.load(), entry.value)
        except Exception as error:  # noqa: BLE001 - likewise
            _left_out(entry.module.partition(".")[0], error)


def _checked(found: object, place: str) -> Plugin:
    """Return what an entry point names. Raises `TypeError` if it is something else."""
    if not isinstance(found, Plugin):
        raise TypeError(f"{place} is not an oncecron.plugins.Plugin")
    return found


def _left_out(package: str, error: Exception, distribution: str | None = None) -> None:
    complain(
        f"the plugin {package} cannot be loaded and is left out: {error}; "
        f"install {distribution or package} again"
    )


def problems_of(file: File) -> Iterator[FileProblem]:
    """Yield what is wrong with a configuration file, also with the tables of plugins."""
    yield from file.problems
    for each in plugins():
        yield from each.problems(file)


def work_of(sources: Sources) -> Work:
    """Return what all plugins know of how far runs are."""
    return _AllWork([each.work(sources) for each in plugins() if each.work])


class _AllWork(NamedTuple):
    works: list[Work]

    def newest(self, key: str) -> str | None:
        return next(filter(None, (each.newest(key) for each in self.works)), None)

    def of_tick(self, key: str, tick: str) -> str | None:
        return next(filter(None, (each.of_tick(key, tick) for each in self.works)), None)

    def is_settled(self, ended: Execution) -> bool:
        return any(each.is_settled(ended) for each in self.works)
