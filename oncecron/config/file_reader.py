"""Read the configuration file, and check it: its tables and values, and who may read and write it.

It may hold passwords and commands, so its owner and mode are checked, as those of a store file.
"""

from __future__ import annotations

import os
import stat

from oncecron.config.file import COMMAND_KEY, File, job_section, table_section
from oncecron.config.options import AUTO_KEY, JOB_COMMANDS, RUN_OPTIONS, SHELL, convert
from oncecron.config.plain_toml import read_plain
from oncecron.core.errors import ConfigurationError, reason_of
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.masking import shown_url, without_urls
from oncecron.core.model import Retention
from oncecron.core.units import parse_duration
from oncecron.host.safe_paths import why_distrusted
from oncecron.stores.address import has_password, shell_quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from oncecron.config.options import Option
    from oncecron.config.ping_table import Ping
    from oncecron.config.rules import Conflict


_LARGEST_FILE = 1 << 20
_TOP_KEYS = {option.name: option for option in RUN_OPTIONS if option.config == "anywhere"}
_TABLES = {"job": "[job.KEY]", "notify": "[notify]", "ping": "[[ping]]", "plugin": "[plugin.NAME]"}
_OF_JOBS = ("job", "redis", "retention", "store_file")
_OBSERVERS = ("ping", "notify", "plugin", "channel", "check", "report", "metrics", "pages", "web")
"""Tables for who looks on, also such as nobody reads. Only the others can stop a job: see `_may_stop_jobs`."""
_PASSWORD = "a password"  # noqa: S105 - the word


_JOB_KEYS = {option.name: option for option in RUN_OPTIONS if option.config != "never"}
_JOB_KEYS[COMMAND_KEY] = SHELL
"""What a [job.KEY] section may set, by name."""
_OWNERS = JOB_COMMANDS[1:]
"""The commands of plugins that may have a table [job.KEY.COMMAND]."""


class FileProblem(NamedTuple):
    """Something wrong in a configuration file."""

    path: str
    text: str
    """What is wrong, and what to do."""
    section: str = ""
    """The heading of the table; empty at the top."""
    name: str = ""
    """As in the file; empty if the whole file or section is meant."""
    keys: tuple[str, ...] = ()
    """The keys of the jobs that it stops; empty: every job."""
    stops: bool = True
    """False: it concerns those who look on alone, and stops no job."""
    private: bool = False
    """Whether another user may find nothing wrong: this one may not read a file."""

    def __str__(self) -> str:
        """Return the place and the text."""
        return f"{f'{self.path} {self.section}'.rstrip()}: {self.shown}"

    @property
    def shown(self) -> str:
        """The text; the URL of a service may be in the place of another value."""
        return without_urls(self.text)


def of_conflict(place: FileProblem, conflict: Conflict) -> FileProblem:
    """Return the problem of options in a section that cannot be there together."""
    names = [COMMAND_KEY if name == "shell" else name.replace("-", "_") for name in conflict.names]
    return place._replace(text=f"{' and '.join(names)}: {conflict.why}", name=names[0])


def parse_file(path: str) -> File:
    """Return a file to work with. Raises `ConfigurationError` only for what stops every job."""
    file = parse(path, *read_private(path, "configuration file"))
    stops_all = (problem for problem in file.problems if problem.stops and not problem.keys)
    if wrong := next(stops_all, None):
        raise ConfigurationError(str(wrong))
    return file


def parse(path: str, text: str, mode: int) -> File:
    """Return what a file sets, with all its problems. Raises `ConfigurationError` if it is not TOML."""
    data = _toml(path, text)
    reader = _Reader(path)
    jobs, retention, redis = (reader.table(data, name) for name in ("job", "retention", "redis"))
    store_file = reader.store_file(data)
    pings = reader.pings(data, mode)
    notify, plugin = (reader.table(data, name) for name in ("notify", "plugin"))
    also = (*_OF_JOBS, "notify", "ping", "plugin")
    file = File(
        path,
        reader.texts(FileProblem(path, ""), data, _TOP_KEYS, also),
        {key: texts for key, job in jobs.items() if (texts := reader.job(key, job)) is not None},
        store_file,
        reader.retention(retention),
        reader.redis(redis),
        notify,
        plugin,
        mode,
        pings=pings,
    )
    if (secret := _secret_of(file)) and (why := _world_readable(path, mode, secret)):
        reader.wrong(FileProblem(path, ""), why)
    return file._replace(problems=tuple(reader.problems))


class _Reader:
    def __init__(self, path: str) -> None:
        self.problems: list[FileProblem] = []
        self._top = FileProblem(path, "")
        self._converted: set[tuple[str, str]] = set()
        """Names with values that are right: many sections are alike. It saves a sixth of the time for 50 jobs."""

    def wrong(self, place: FileProblem, reason: str, name: str = "") -> None:
        """Note a problem."""
        self.problems.append(place._replace(text=reason, name=name))

    def table(self, data: dict[str, Any], name: str) -> dict[str, Any]:
        """Take a table out of the file."""
        value = data.pop(name, {})
        if isinstance(value, dict):
            return value
        place = self._top._replace(stops=_may_stop_jobs(name, value))
        self.wrong(place, f"{name} must be a table: [{name}]", name)
        return {}

    def read(
        self, place: FileProblem, table: Mapping[str, Any], one: Callable[[str, Any], Any]
    ) -> dict[str, Any]:
        """Return what `one` makes of each name and value; its `ValueError` is a problem."""
        found = {}
        for name, value in table.items():
            try:
                found[name] = one(name, value)
            except ValueError as error:
                self.wrong(place, str(error), name)
        return found

    def store_file(self, data: dict[str, Any]) -> str | None:
        """Take the path of the store file out of the file."""
        named = {name: data.pop(name) for name in ("store_file",) if name in data}
        return self.read(self._top, named, _text).get("store_file")

    def job(self, key: str, value: Any) -> dict[str, str] | None:
        """Return the section of a key, None if it is none. A dot without quotes makes tables in it: a problem."""
        if not isinstance(value, dict):
            why = f"{key!r} in [job] needs the name of a job; write [job.KEY]"
            self.wrong(self._top._replace(section="[job]"), why, key)
            return None
        place = FileProblem(self._top.path, "", job_section(key), "", (key,))
        if key == AUTO_KEY:
            self.wrong(
                place,
                f"--key {key} stands for the derived key, so no job has this key; see `oncecron jobs` for the keys, "
                "and name one of them",
            )
        own = {name: each for name, each in value.items() if name in _OWNERS and _is_own(each)}
        value = {name: each for name, each in value.items() if name not in own}
        if dict in map(type, value.values()):
            below = [f"{key}.{names}" for names in _tables_below(value)]
            self.wrong(
                place._replace(
                    section=f"[job.{below[-1]}]",
                    keys=(key, *below),
                ),
                f"a key with dots needs quotes; write {job_section(below[-1])}",
            )
            value = {name: each for name, each in value.items() if not isinstance(each, dict)}
        found = self.texts(place, value, _JOB_KEYS)
        for command, table in own.items():
            # What they mean is known to the plugin.
            texts = self.read(place._replace(section=table_section(key, command)), table, _text)
            found |= {f"{command}.{name.replace('_', '-')}": text for name, text in texts.items()}
        return found

    def texts(
        self,
        place: FileProblem,
        data: Mapping[str, Any],
        known: Mapping[str, Option],
        also: Iterable[str] = (),
    ) -> dict[str, str]:
        """Return a table's values by option name, as text; an unknown key is a problem."""
        table = {}
        for key, value in data.items():
            if key.replace("_", "-") in known:
                table[key] = value
                continue
            section = place.section or ("a table" if isinstance(value, dict) else "")
            stops = bool(place.section) or _may_stop_jobs(key, value)
            self.wrong(place._replace(stops=stops), _unknown(key, section, known, also), key)

        def one(key: str, value: Any) -> str:
            name, text = key.replace("_", "-"), _text(key, value)
            if (name, text) not in self._converted:
                _prefixed(key, lambda: convert(known[name], text))
                self._converted.add((name, text))
            return text

        found = self.read(place, table, one)
        return {key.replace("_", "-"): text for key, text in found.items()}

    def retention(self, table: Mapping[str, Any]) -> Retention:
        """Return what the table [retention] sets."""

        def one(name: str, value: Any) -> Any:
            if name not in Retention._fields:
                raise ValueError(_unknown(name, "retention", (), Retention._fields))
            return _prefixed(name, lambda: parse_duration(str(value)))

        return Retention(**self.read(self._top._replace(section="[retention]"), table, one))

    def redis(self, table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Return the values of the table [redis], as text."""
        if not table:
            return ()
        from oncecron.stores.redis.address import check_defaults  # noqa: PLC0415 - the table is rare

        def one(name: str, value: Any) -> str:
            text = _text(name, value)
            check_defaults({name: text})
            return text

        return tuple(self.read(self._top._replace(section="[redis]"), table, one).items())

    def pings(self, data: dict[str, Any], mode: int) -> tuple[Ping, ...]:
        """Take the tables [[ping]] out of the file, without those that are wrong."""
        if "ping" not in data:
            return ()
        place = self._top._replace(stops=False)
        try:
            from oncecron.config.ping_table import read_pings  # noqa: PLC0415 - the tables are rare

            pings, problems = read_pings(data.pop("ping"), place, mode)
        except Exception as error:  # noqa: BLE001 - whatever it is, no job depends on a ping
            data.pop("ping", None)
            self.wrong(place, f"the pings cannot be read: {type(error).__name__}: {error}", "ping")
            return ()
        self.problems += problems
        return pings


def _prefixed(name: str, convert: Callable[[], Any]) -> Any:
    try:
        return convert()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _tables_below(table: Mapping[str, Any]) -> Iterator[str]:
    for name, inner in table.items():
        if isinstance(inner, dict):
            yield name
            yield from (f"{name}.{below}" for below in _tables_below(inner))


def _unknown(key: str, section: str, known: Iterable[str], also: Iterable[str]) -> str:
    from oncecron.core.suggestion import unknown  # noqa: PLC0415 - for an error message alone

    if not section and key.replace("_", "-") in _JOB_KEYS:
        return f"unknown key {key!r}; it belongs in a [job.KEY] section"
    names = sorted([*(option.replace("-", "_") for option in known), *also])
    return unknown("key", key, names, shown=lambda name: _TABLES.get(name, name))


def _may_stop_jobs(name: str, value: Any) -> bool:
    """Return whether something wrong at the top of a file stops jobs: not if it is meant for who looks on.

    A name that nobody knows is meant for what it resembles. If it resembles nothing, it stops jobs unless it is a table
    without an option of a job, such as one for another program.
    """
    from oncecron.core.suggestion import similar  # noqa: PLC0415 - for an error message alone

    known = (*_OF_JOBS, *_OBSERVERS, *(option.replace("-", "_") for option in _JOB_KEYS))
    meant = [name] if name in known else similar(name, known)
    if meant:
        return meant[0] not in _OBSERVERS
    tables = value if isinstance(value, list) else [value]
    return not all(isinstance(table, dict) and not _has_option(table) for table in tables)


def _has_option(table: Mapping[str, Any]) -> bool:
    return any(
        _has_option(value) if isinstance(value, dict) else name.replace("_", "-") in _JOB_KEYS
        for name, value in table.items()
    )


def _is_own(value: Any) -> bool:
    return isinstance(value, dict) and not _has_option(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{name} must be a text, a number, true or false")  # noqa: TRY004 - the file's fault
    if "\0" in str(value):
        raise ValueError(f"{name} contains a NUL byte; remove it")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml(path: str, text: str) -> dict[str, Any]:
    if (plain := read_plain(text)) is not None:
        return plain
    import tomllib  # noqa: PLC0415 - costs ten milliseconds

    try:
        found = tomllib.loads(text)
        repr(found)  # raises for a number of 5000 hexadecimal digits, which no message could show
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: {error}; correct the TOML there") from error
    except (ValueError, RecursionError) as error:  # a number of as many digits, or arrays as deep
        raise ConfigurationError(f"{path}: {reason_of(error)}") from error
    return found


def _secret_of(file: File) -> str | None:
    tables = [file.values, *file.jobs.values()]
    stores = (table[name] for table in tables for name in ("store", "log") if name in table)
    if any(map(has_password, stores)):
        return _PASSWORD
    return _PASSWORD if any(name.endswith("password") for name, _ in file.redis) else None


def read_store_file(path: str) -> str:
    """Return the store that a store file names. Raises `ConfigurationError`."""
    text, mode = read_private(path, "store file")
    text = text.strip()
    if not text or "\n" in text or "\0" in text:
        raise ConfigurationError(f"store file {path} must hold exactly one line, the store's URL")
    if has_password(text) and (why := _world_readable(path, mode, _PASSWORD)):
        raise ConfigurationError(f"store file {path}: {why}")
    return text


def url_in(
    table: dict[str, Any], name: str, place: FileProblem, mode: int
) -> tuple[Any, FileProblem | None]:
    """Take a URL out of a table of observers, as it stands there or from the file that NAME_file names.

    Return it as it is, None if there is none, and what is wrong: also that everybody may read it if it is a secret.
    """
    file_name = f"{name}_file"
    url, named = table.pop(name, None), table.pop(file_name, None)
    if url is not None and named is not None:
        why = f"{name} and {file_name} contradict each other; leave one out"
        return None, place._replace(text=why, name=file_name)
    if named is not None:
        text, problem = secret_in(named, file_name, place)
        return text and text.strip(), problem
    if isinstance(url, str) and mode & stat.S_IROTH and shown_url(url) != url:
        why = f"{name}: this URL is a secret, and the file is world-readable"
        cure = f"move the URL to a file of its own, and name it in {file_name}"
        return None, place._replace(text=f"{why}; {cure}", name=name)
    return url, None


def secret_in(named: Any, name: str, place: FileProblem) -> tuple[str | None, FileProblem | None]:
    """Return the text of a file that has only a secret, or why it is not used. `named`: the value of `name`."""
    place = place._replace(name=name)
    if not isinstance(named, str) or not named or "\0" in named:
        return None, place._replace(text=f"{name} must be the path of a file")
    path = os.path.join(os.path.dirname(place.path), named)
    try:
        text, mode = read_private(path, f"{name}:")
    except ConfigurationError as error:
        private = isinstance(error.__cause__, PermissionError)
        return None, place._replace(text=str(error), private=private)
    if why := _world_readable(path, mode, "a secret"):
        return None, place._replace(text=f"{name}: {path}: {why}")
    return text, None


def read_private(path: str, what: str, *, trusting: bool = False) -> tuple[str, int]:
    """Read a file that may hold a password or a command; return its text and mode.

    Only a regular file is read: a pipe would make a firing wait for ever. /dev/null is an empty file. `trusting`: also
    one that other users can write.
    """
    try:
        with open(_open_private(path, what, trusting=trusting), encoding="utf-8") as file:
            text = file.read(_LARGEST_FILE + 1)
            mode = os.fstat(file.fileno()).st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{what} {path} cannot be read: {_why_unread(error, path)}"
        ) from error
    if len(text) > _LARGEST_FILE:
        raise ConfigurationError(f"{what} {path} is larger than 1 MiB; name another file")
    return text.removeprefix("\ufeff"), mode  # editors of Windows write it; TOML does not know it


def _why_unread(error: OSError | UnicodeDecodeError, path: str) -> str:
    if isinstance(error, PermissionError):
        return f"{reason_of(error)}; let user {os.geteuid()} read it, such as by `chgrp GROUP {shell_quoted(path)}`"
    if isinstance(error, UnicodeDecodeError):
        return f"{reason_of(error)}; save it as UTF-8"
    return (
        f"{reason_of(error)}; correct the path"
        if isinstance(error, FileNotFoundError)
        else reason_of(error)
    )


def _open_private(path: str, what: str, *, trusting: bool) -> int:
    """Return a descriptor of a file to trust. Raises `ConfigurationError` for any other, `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _refuse_untrusted(path, what, os.fstat(descriptor).st_mode, trusting=trusting)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_untrusted(path: str, what: str, mode: int, *, trusting: bool) -> None:
    if not stat.S_ISREG(mode):
        if os.path.samefile(path, os.devnull):
            return
        raise ConfigurationError(f"{what} {path} is not a regular file; name another file")
    if not trusting and (why := why_distrusted(path)):
        raise ConfigurationError(f"{what} {path}: {why}")


def _world_readable(path: str, mode: int, secret: str) -> str | None:
    if not mode & stat.S_IROTH:
        return None
    return f"it holds {secret} and is world-readable; run `chmod 640 {shell_quoted(path)}`"
