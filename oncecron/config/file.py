"""The configuration file: found, read and checked.

The first of --config, $ONCECRON_CONFIG, $XDG_CONFIG_HOME/oncecron/config.toml (~/.config) and /etc/oncecron.toml is
read; files are not merged. It may hold passwords and commands, so its owner and mode are checked.
"""

from __future__ import annotations

import os
import stat

from oncecron.config.convert import convert
from oncecron.config.options import AUTO_KEY, CONFIG, KEY_LETTERS, RUN_OPTIONS, SHELL
from oncecron.core.errors import ConfigurationError, UsageError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import Retention
from oncecron.core.safe_paths import distrusted
from oncecron.core.units import parse_duration
from oncecron.stores.address import has_password, home_directory, shell_quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from oncecron.config.options import Option


SYSTEM_FILE = "/etc/oncecron.toml"
_LARGEST_FILE = 1 << 20
_TOP_KEYS = {option.name: option for option in RUN_OPTIONS if option.config == "anywhere"}
_BARE = KEY_LETTERS.difference("./:@")  # allowed in a TOML name without quotes
COMMAND_KEY = "command"  # the same as --shell on the command line
_JOB_KEYS = {option.name: option for option in RUN_OPTIONS if option.config != "never"} | {
    COMMAND_KEY: SHELL
}


class File(NamedTuple):
    """A configuration file after checking; option values by name, as text."""

    path: str | None
    values: dict[str, str]
    jobs: dict[str, dict[str, str]]
    store_file: str | None
    retention: Retention
    redis: tuple[tuple[str, str], ...] = ()
    """Connection settings for a Redis store; see `oncecron.stores.redis.address`."""


def read_file(named: str | None) -> File:
    """Read the named configuration file, else the first that exists, else none."""
    if named == "":
        raise UsageError("--config: the path is empty (an unset variable?)")
    path = named or find_file(os.environ, home_directory)
    return _parse(path) if path else File(None, {}, {}, None, Retention())


def find_file(environment: Mapping[str, str], home: Callable[[], str]) -> str | None:
    """Return the file that a process with this environment and home reads without --config; None: it reads none."""
    named = environment.get(CONFIG.environment or "")
    if named:
        return named
    base = environment.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        base = os.path.join(home(), ".config")
    paths = (os.path.join(base, "oncecron/config.toml"), SYSTEM_FILE)
    return next(filter(os.path.exists, paths), None)


def _parse(path: str) -> File:
    text, mode = read_private(path, "configuration file")
    import tomllib  # noqa: PLC0415 - costs ten milliseconds where there is no file

    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of 5000 digits, or arrays as deep
        raise ConfigurationError(f"{path}: {error}") from error
    jobs = _table(path, data, "job")
    retention = _table(path, data, "retention")
    redis = _redis(path, _table(path, data, "redis"))
    store_file = data.pop("store_file", None)
    file = File(
        path,
        _texts(path, "", data, _TOP_KEYS, ("store_file", "job", "redis", "retention")),
        {
            key: _texts(path, job_section(key), _job(path, key, job), _JOB_KEYS)
            for key, job in jobs.items()
        },
        _store_file(path, store_file),
        _retention(path, retention),
        redis,
    )
    if _holds_password(file):
        _refuse_world_readable(path, mode, "configuration file")
    return file


def _store_file(path: str, value: Any) -> str | None:
    try:
        return None if value is None else _text("store_file", value)
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _table(path: str, data: dict[str, Any], name: str) -> dict[str, Any]:
    return _mapping(path, name, data.pop(name, {}))


def _mapping(path: str, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path}: {name} must be a table: [{name}]")
    return value


def _job(path: str, key: str, value: Any) -> dict[str, Any]:
    """Return the section of a key. Raises `ConfigurationError` for inner tables: a dot without quotes makes them."""
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{path}: {key!r} in [job] needs the name of a job; write [job.KEY]"
        )
    if key == AUTO_KEY:
        raise ConfigurationError(
            f"{path} [job.{key}]: --key {key} stands for the derived key, so no job has this key; see `oncecron jobs` "
            "for the keys, and name one of them"
        )
    section = value
    names = ".".join((key, *_tables_within(section)))
    if names != key:
        raise ConfigurationError(
            f"{path} [job.{names}]: a key with dots needs quotes; write {job_section(names)}"
        )
    return section


def _tables_within(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of nested tables, outermost first."""
    while inner := next((pair for pair in table.items() if isinstance(pair[1], dict)), None):
        name, table = inner
        yield name


def job_section(key: str) -> str:
    """Return the heading of a key's section; TOML needs quotes around some names."""
    return f"[job.{key}]" if _BARE.issuperset(key) else f'[job."{key}"]'


def _texts(
    path: str,
    section: str,
    data: Mapping[str, Any],
    known: Mapping[str, Option],
    also: Iterable[str] = (),
) -> dict[str, str]:
    """Return a table's values by option name, as text; an unknown key is an error."""
    where = f"{path} {section}".rstrip()
    texts = {}
    for key, value in data.items():
        name = key.replace("_", "-")
        if name not in known:
            raise ConfigurationError(
                f"{where}: unknown key {key!r}; {_meant(name, section, known, also)}"
            )
        try:
            texts[name] = _text(key, value)
        except ValueError as error:
            raise ConfigurationError(f"{where}: {error}") from error
        try:
            convert(known[name], texts[name])
        except ValueError as error:
            raise ConfigurationError(f"{where}: {key}: {error}") from error
    return texts


def _meant(name: str, section: str, known: Iterable[str], also: Iterable[str]) -> str:
    """Return what to write instead of an unknown key: a similar one, else all that are known."""
    from difflib import get_close_matches  # noqa: PLC0415 - for an error message alone

    if not section and name in _JOB_KEYS:
        return "it belongs in a [job.KEY] section"
    keys = sorted([*(option.replace("-", "_") for option in known), *also])
    near = get_close_matches(name.replace("-", "_"), keys, 1)
    if near:
        return f"did you mean {near[0] if near[0] != 'job' else '[job.KEY]'}?"
    return f"known keys: {', '.join(keys)}"


def _retention(path: str, table: dict[str, Any]) -> Retention:
    values = {}
    for name, value in table.items():
        if name not in Retention._fields:
            raise ConfigurationError(
                f"{path} [retention]: unknown key {name!r}; {_meant(name, 'retention', (), Retention._fields)}"
            )
        try:
            values[name] = parse_duration(str(value))
        except ValueError as error:
            raise ConfigurationError(f"{path} [retention] {name}: {error}") from error
    return Retention(**values)


def _redis(path: str, table: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the checked values of the table [redis], as text."""
    if not table:
        return ()
    from oncecron.stores.redis.address import check_defaults  # noqa: PLC0415 - the table is rare

    try:
        texts = {name: _text(name, value) for name, value in table.items()}
        check_defaults(texts)
    except ValueError as error:
        raise ConfigurationError(f"{path} [redis]: {error}") from error
    return tuple(texts.items())


def _text(name: str, value: Any) -> str:
    """Return a value of the file as option text. Raises `ValueError`."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"{name} must be a text, a number, true or false")  # noqa: TRY004 - the file's fault
    if "\0" in str(value):
        raise ValueError(f"{name} contains a NUL byte; remove it")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _holds_password(file: File) -> bool:
    tables = [file.values, *file.jobs.values()]
    return any(
        has_password(table.get(name, "")) for table in tables for name in ("store", "log")
    ) or any(name.endswith("password") for name, _ in file.redis)


def store_from_file(file: File, configured: str | None) -> str | None:
    """Return the store from $ONCECRON_STORE_FILE, else the configured one, else the one from `store_file`."""
    path = os.environ.get("ONCECRON_STORE_FILE")
    if not path:
        if configured is not None or file.store_file is None:
            return configured
        path = os.path.join(os.path.dirname(file.path or ""), file.store_file)
    text, mode = read_private(path, "store file")
    text = text.strip()
    if not text or "\n" in text or "\0" in text:
        raise ConfigurationError(f"store file {path} must hold exactly one line, the store's URL")
    if has_password(text):
        _refuse_world_readable(path, mode, "store file")
    return text


def read_private(path: str, what: str) -> tuple[str, int]:
    """Read a file that may hold a password or a command; return its text and mode.

    Only a regular file is read: a pipe would make a firing wait for ever. /dev/null is an empty file.
    """
    try:
        with open(_opened(path, what), encoding="utf-8") as file:
            text = file.read(_LARGEST_FILE + 1)
            mode = os.fstat(file.fileno()).st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigurationError(f"{what} {path} cannot be read: {reason}") from error
    if len(text) > _LARGEST_FILE:
        raise ConfigurationError(f"{what} {path} is larger than 1 MiB; name another file")
    return text, mode


def _opened(path: str, what: str) -> int:
    """Return a descriptor of a file to trust. Raises `ConfigurationError` for any other, `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _refuse_untrusted(path, what, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_untrusted(path: str, what: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        if os.path.samefile(path, os.devnull):
            return
        raise ConfigurationError(f"{what} {path} is not a regular file; name another file")
    if why := distrusted(path):
        raise ConfigurationError(f"{what} {path}: {why}")


def _refuse_world_readable(path: str, mode: int, what: str) -> None:
    if mode & stat.S_IROTH:
        raise ConfigurationError(
            f"{what} {path} holds a password and is world-readable; run `chmod 640 {shell_quoted(path)}`"
        )
