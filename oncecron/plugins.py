"""Where the core and its plugins meet: what a plugin brings to people's commands, and which plugins there are.

A plugin is a package with a `Plugin`. Ours have it as the `PLUGIN` of their module `plugin`; that of any other package
is found by its entry point in the group `oncecron.commands`. The core asks the installed ones, and knows none of them;
a firing asks nobody.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oncecron.config.options import JOB_COMMANDS, RUN_OPTION
from oncecron.config.rules import conflicts
from oncecron.core.errors import OncecronError, shortage_of
from oncecron.host.stderr import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from oncecron.cli.group import Listed
    from oncecron.config.file import File
    from oncecron.config.file_reader import FileProblem
    from oncecron.config.options import Option
    from oncecron.config.rules import Conflict
    from oncecron.config.settings import Settings
    from oncecron.core.diagnosis import Diagnosis
    from oncecron.core.log_rows import ConfiguredValue, Execution, Told
    from oncecron.log.audit import Question
    from oncecron.log.protocol import Breach
    from oncecron.log.sources import Sources
    from oncecron.stores.reader import Reader
    from oncecron.watch.findings import Finding, Kind

    Answer = TypeVar("Answer")
    Asked = TypeVar("Asked")

_PLUGINS = ("oncecron_crontab", "oncecron_each", "oncecron_notify")
"""The packages of our own plugins that have a `Plugin`."""
_GROUP = "oncecron.commands"


class JobCommand(NamedTuple):
    """A command that runs a job once per tick, for what reads its line without carrying it out, such as lint."""

    name: str
    options: Mapping[str, Option]
    """Those that it takes, by name."""
    defaults: tuple[Option, ...]
    """Those that it does not take, whose defaults `conflicts` asks for."""
    conflicts: Callable[..., Iterator[Conflict]]
    example: str
    """A short line that is right."""

    @property
    def shown(self) -> str:
        """The command as messages name it."""
        return f"`oncecron {self.name}`"


RUN = JobCommand("run", RUN_OPTION, (), conflicts, example="oncecron run --key NAME -- COMMAND")


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
    findings: Callable[[Sources, File], Iterable[Finding]] = _nothing
    """What is wrong now: for `check`."""
    told: Callable[[Sources, File], Iterable[tuple[str, Told]]] = _nothing
    """Who was told what, by name: for the pages."""
    again: Callable[[str, str | None], Iterable[str]] = _nothing
    """The words of `oncecron` that run a tick of a scheduled key again, where its line is: for `why` and `notify`."""
    audited: Callable[[Question], Iterable[Breach]] = _nothing
    """What the log has of it: for `audit`."""
    host: Callable[[Settings], Iterable[Diagnosis]] = _nothing
    """What it needs of this host: for `doctor`."""
    store: Callable[[Settings, Reader], Iterable[Diagnosis]] = _nothing
    """What it needs of the store: for `doctor`."""
    prune: Callable[[Settings, Reader, bool], Iterable[str]] = _nothing
    """Remove what is old, or (True) count it; yield a sentence for each kind: for `prune`."""


class Installed(NamedTuple):
    """A plugin, and where it is from."""

    plugin: Plugin
    package: str
    distribution: str


@functools.cache
def installed() -> tuple[Installed, ...]:
    """Return the installed plugins. One that cannot be loaded is left out, with a line on standard error."""
    return (*_ours(), *of_others())


def brought(ask: Callable[[Plugin], Iterable[Answer]]) -> Iterator[Answer]:
    """Yield what all plugins answer. One that fails is left out, with a line on standard error."""
    for each in installed():
        yield from _answers(each, ask, each.plugin)


def line_again(key: str, tick: str | None) -> str | None:
    """Return the words of `oncecron` that run a tick of a scheduled key again; None: no plugin knows any."""
    return next(brought(lambda each: each.again(key, tick)), None)


def _answers(
    of: Installed, ask: Callable[[Asked], Iterable[Answer]], asked: Asked
) -> Iterator[Answer]:
    try:
        yield from ask(asked)
    except OncecronError:
        raise  # what the plugin asked failed, such as the store
    except Exception as error:
        if shortage := shortage_of(error):
            raise shortage from error
        _failed(of.package, of.distribution, f"{type(error).__name__}: {error}")


@functools.cache  # it may be asked for each key
def _failed(package: str, distribution: str, why: str) -> None:
    complain(
        f"the plugin {package} failed, and its answer is left out: {why}; report it to the authors of {distribution}"
    )


def job_command(name: str) -> JobCommand | None:
    """Return a command that runs a job once per tick; None: no installed one has this name."""
    if name == RUN.name:
        return RUN
    found = brought(lambda each: (each.job_command,)) if name in JOB_COMMANDS else ()
    return next((each for each in found if each and each.name == name), None)


def _ours() -> Iterator[Installed]:
    for package in _PLUGINS:
        try:
            found = importlib.import_module(f"{package}.plugin").PLUGIN
            yield Installed(found, package, "oncecron")
        except ModuleNotFoundError as error:
            if error.name != package:
                _left_out(package, error, "oncecron")
        except Exception as error:  # noqa: BLE001 - likewise
            _left_out(package, error, "oncecron")


@functools.cache
def of_others() -> tuple[Installed, ...]:
    """Return the plugins of other packages than ours."""
    return tuple(_of_others())


def _of_others() -> Iterator[Installed]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 10 ms

    for entry in entry_points(group=_GROUP):
        package = entry.module.partition(".")[0]
        distribution = entry.dist.name if entry.dist else package
        try:
            yield Installed(_checked(entry.load(), entry.value), package, distribution)
        except Exception as error:  # noqa: BLE001 - likewise
            _left_out(package, error, distribution)


def _checked(found: object, place: str) -> Plugin:
    """Return what an entry point names. Raises `TypeError` if it is something else."""
    if not isinstance(found, Plugin):
        raise TypeError(f"{place} is not an oncecron.plugins.Plugin")
    return found


def _left_out(package: str, error: Exception, distribution: str) -> None:
    if shortage := shortage_of(error):  # it is no fault of the plugin's
        raise shortage from error
    complain(
        f"the plugin {package} cannot be loaded and is left out: {error}; install {distribution} again"
    )


def problems_of(file: File) -> Iterator[FileProblem]:
    """Yield what is wrong with a configuration file, also with the tables of plugins.

    What a plugin says of a name takes the place of what the core does.
    """
    found = [*brought(lambda each: each.problems(file))]
    explained = {(each.section, each.name) for each in found if each.name}
    yield from (each for each in file.problems if (each.section, each.name) not in explained)
    yield from found


def work_of(sources: Sources) -> Work:
    """Return what all plugins know of how far runs are."""

    def asked(plugin: Plugin) -> Iterable[Work]:
        return (plugin.work(sources),) if plugin.work else ()

    return _AllWork(
        [(each, work) for each in installed() for work in _answers(each, asked, each.plugin)]
    )


class _AllWork(NamedTuple):
    works: list[tuple[Installed, Work]]

    def _asked(self, ask: Callable[[Work], Answer]) -> Iterator[Answer]:
        for each, work in self.works:
            yield from _answers(each, lambda work: (ask(work),), work)

    def newest(self, key: str) -> str | None:
        return next(filter(None, self._asked(lambda work: work.newest(key))), None)

    def of_tick(self, key: str, tick: str) -> str | None:
        return next(filter(None, self._asked(lambda work: work.of_tick(key, tick))), None)

    def is_settled(self, ended: Execution) -> bool:
        return any(self._asked(lambda work: work.is_settled(ended)))
