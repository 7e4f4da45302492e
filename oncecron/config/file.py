"""The configuration file: where it is, and what it sets.

The first of --config, $ONCECRON_CONFIG, $XDG_CONFIG_HOME/oncecron/config.toml (~/.config) and /etc/oncecron.toml is
read; files are not merged. `config.file_reader` reads and checks it; a firing without a file does not load that.
"""

from __future__ import annotations

import os

from oncecron.config.options import CONFIG, KEY_LETTERS
from oncecron.core.errors import UsageError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import Retention
from oncecron.stores.address import home_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from oncecron.config.file_reader import FileProblem
    from oncecron.config.ping_table import Ping


SYSTEM_FILE = "/etc/oncecron.toml"
COMMAND_KEY = "command"  # the same as --shell on the command line
_BARE = KEY_LETTERS.difference("./:@")  # allowed in a TOML name without quotes


class File(NamedTuple):
    """A configuration file after checking; option values by name, as text."""

    path: str | None
    values: dict[str, str]
    jobs: dict[str, dict[str, str]]
    """The [job.KEY] sections by key, without what is wrong in them.

    What stands in [job.KEY.COMMAND] is here as COMMAND.NAME, for the plugin that has the command.
    """
    store_file: str | None
    retention: Retention
    redis: tuple[tuple[str, str], ...] = ()
    """Connection settings for a Redis store; see `oncecron.stores.redis.address`."""
    notify: Mapping[str, Any] = {}
    """The table [notify] as it stands there; see `oncecron_notify.notify_table`."""
    plugin: Mapping[str, Any] = {}
    """The tables [plugin.NAME] of other packages as they stand there. A firing does not look into them."""
    mode: int = 0
    """The permissions of the file."""
    problems: tuple[FileProblem, ...] = ()
    """What is wrong; from `read_file`, with single jobs alone."""
    pings: tuple[Ping, ...] = ()
    """The [[ping]] tables, in their order."""

    def pings_for(self, key: str) -> tuple[Ping, ...]:
        """Return the services that are pinged for a key."""
        return tuple(ping for ping in self.pings if ping.is_for(key))


def read_file(named: str | None) -> File:
    """Read the named configuration file, else the first that exists, else none."""
    if named == "":
        raise UsageError("--config: the path is empty (an unset variable?)")
    path = named or find_file(os.environ, home_directory)
    if not path:
        return File(None, {}, {}, None, Retention())
    from oncecron.config.file_reader import parse_file  # noqa: PLC0415 - many firings have no file

    return parse_file(path)


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


def job_section(key: str) -> str:
    """Return the heading of a key's section; TOML needs quotes around some names."""
    return f"[job.{key}]" if _BARE.issuperset(key) else f'[job."{key}"]'


def table_section(key: str, table: str) -> str:
    """Return the heading of what one command alone has in a key's section."""
    return f"{job_section(key)[:-1]}.{table}]" if table else job_section(key)


def store_file_of(
    file: File, configured: str | None, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return the path of the store file that counts, and where it is named. None: the configured store counts."""
    path = environment.get("ONCECRON_STORE_FILE")
    if path:
        return path, "$ONCECRON_STORE_FILE"
    if configured is not None or file.store_file is None:
        return None
    directory = os.path.dirname(file.path or "")
    return os.path.join(directory, file.store_file), f"{file.path} store_file"
