"""The value of each option: from the command line, else the environment, else the TOML file, else the default.

Every value is converted and checked here, and an error names its source.
"""

from __future__ import annotations

import os

from oncecron.config.file import (
    COMMAND_KEY,
    SYSTEM_FILE,
    job_section,
    read_file,
    store_file_of,
    table_section,
)
from oncecron.config.options import AUTO_KEY, CONFIG, LOG, NAMESPACE, STORE, convert
from oncecron.core.errors import ConfigurationError, OncecronError, UsageError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores import check_address, check_namespace
from oncecron.stores.address import has_password, masked, parse_address, shell_quoted, with_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from oncecron.config.file import File
    from oncecron.config.options import Option
    from oncecron.stores.address import Address


class Settings:
    """The values of one command, converted: `settings["connect-timeout"]`."""

    def __init__(
        self,
        options: Iterable[Option],
        given: Mapping[str, str],
        key: str | None = None,
        *,
        of: File | None = None,
    ) -> None:
        """Find and check all values. `given`: typed options; `key`: selects the [job.KEY] section.

        `of`: a file whose values alone count, without its problems and without the environment. Raises `UsageError`,
        `ConfigurationError`; for a wrong section only if it is the key's.
        """
        self._given = given
        self._options, self._key = tuple(options), key
        self._environment: Mapping[str, str] = os.environ if of is None else {}
        self.file = of or read_file(given.get("config"))
        if key is not None and of is None:
            self._refuse_wrong_section(key)
        self._job = self.file.jobs.get(key or "", {})
        self._values: dict[str, Any] = {}
        self._texts: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self._address: Address | None = None
        for option in self._options:
            self._values[option.name] = self._find(option)

    def reread(self) -> Settings:
        """Return the same options as files are now. Raises like the constructor."""
        return Settings(self._options, self._given, self._key)

    def _refuse_wrong_section(self, key: str) -> None:
        """Raise `ConfigurationError` for a wrong section of the key, or one that was meant for `--key auto`."""
        keys = {key, AUTO_KEY} if self._given.get("key") == AUTO_KEY else {key}
        for problem in self.file.problems:
            if not keys.isdisjoint(problem.keys):
                raise ConfigurationError(str(problem))

    def _find(self, option: Option) -> Any:
        name = option.name
        environment = self._environment.get(option.environment or "") or None
        if name in self._given:
            return self._convert(option, self._given[name], f"--{name}", UsageError)
        if environment is not None:
            return self._convert(option, environment, f"${option.environment}", ConfigurationError)
        for values, key in ((self._job, self._key), (self.file.values, None)):
            if option.place in values:
                section = None if key is None else table_section(key, option.table)
                source = " ".join(filter(None, (self.file.path, section, name)))
                return self._convert(option, values[option.place], source, ConfigurationError)
        if option.default is None:
            return False if option.kind == "flag" else None
        return self._convert(option, option.default, f"the default of --{name}", ConfigurationError)

    def _convert(self, option: Option, text: str, source: str, error: type[OncecronError]) -> Any:
        self._texts[option.name], self._sources[option.name] = text, source
        try:
            return convert(option, text)
        except ValueError as found:
            raise error(f"{source}: {found}") from found

    def __getitem__(self, name: str) -> Any:
        """Return a converted value; None, or False of a flag, if it is not set and has no default."""
        return self._values[name]

    def text(self, name: str) -> str | None:
        """Return a value as it is written; None if it is not set and has no default."""
        return self._texts.get(name)

    def source(self, name: str) -> str:
        """Return the source of a value, for messages; empty if it is not set."""
        return self._sources.get(name, "")

    def is_typed(self, name: str) -> bool:
        """Return whether the value was given on the command line."""
        return name in self._given

    def configured_command(self) -> str | None:
        """Return the shell command that the [job.KEY] section sets, or None."""
        return self._job.get(COMMAND_KEY)

    def near_section(self, key: str) -> str:
        """Return a question for a similar [job.KEY] section, to end a sentence; empty if the key has its own."""
        from oncecron.core.suggestion import suggestion  # noqa: PLC0415 - for an error message alone

        return "" if key in self.file.jobs else suggestion(key, self.file.jobs, shown=job_section)

    def command(self, words: str) -> str:
        """Return `oncecron WORDS` in backquotes, to be pasted: with the store options that were typed.

        A typed store with a password is not shown: $ONCECRON_STORE stands for it.
        """
        return with_options(words, _where_typed(self._given))

    def named(self, text: str) -> str:
        """Return a text with each command in backquotes as `command` shows it."""
        return naming(text, self._given)

    def has_store(self) -> bool:
        """Return whether any source sets a store, right or wrong."""
        named = self._values[STORE.name] or self._environment.get("ONCECRON_STORE_FILE")
        return bool(named or self.file.store_file)

    def address(self) -> Address:
        """Return the store. Raises `ConfigurationError` if none is set: there is no default."""
        if self._address is None:
            self._address = self._find_address()
        return self._address

    def store_text(self) -> str | None:
        """Return the address of the store as it is written, None if none is set. Raises `ConfigurationError`."""
        text: str | None = self._values[STORE.name]
        if self.is_typed(STORE.name) or self._environment.get(STORE.environment or ""):
            return text
        named = store_file_of(self.file, text, self._environment)
        if named is None:
            return text
        from oncecron.config.file_reader import read_store_file  # noqa: PLC0415 - as for a file

        path, self._sources[STORE.name] = named
        return read_store_file(path)

    def _find_address(self) -> Address:
        text = self.store_text()
        if text is None and "ONCECRON_KEY" in self._environment:
            raise ConfigurationError(
                "no store is configured inside this command, to which oncecron passes $ONCECRON_STORE only with "
                f"`pass_store = true` or --pass-store; or set `store` in {SYSTEM_FILE}"
            )
        if text is None:
            raise ConfigurationError(
                f"no store is configured; set --store, $ONCECRON_STORE, or `store` in {SYSTEM_FILE}: "
                "postgresql://USER@HOST/DATABASE, or local for this machine only"
            )
        address = self._parse_address(STORE.name, text)
        check_namespace(address, self._values[NAMESPACE.name])
        return address

    def _parse_address(self, name: str, text: str) -> Address:
        try:
            address = parse_address(text)
            if address.kind == "redis":
                address = address._replace(options=self.file.redis)
            check_address(address)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.source(name)}: {error}") from error
        return address

    def log(self) -> Address | None:
        """Return the log store of --log, or None. Raises `ConfigurationError`."""
        text = self._values[LOG.name]
        if text is None:
            return None
        source = self.source(LOG.name)
        log = self._parse_address(LOG.name, text)
        if log.kind not in ("postgres", "sqlite"):
            raise ConfigurationError(
                f"{source}: {masked(text)} cannot hold the log; "
                "use postgresql://USER@HOST/DATABASE or sqlite:///ABSOLUTE/PATH"
            )
        if log[:2] == self.address()[:2]:
            raise ConfigurationError(
                f"{source}: {masked(text)} is the store itself, which already holds the log; "
                "leave --log out, or name another database"
            )
        return log


def _where_typed(given: Mapping[str, str]) -> str:
    options = ""
    for name in (STORE.name, LOG.name, NAMESPACE.name, CONFIG.name):
        if name in given:
            secret = name in (STORE.name, LOG.name) and has_password(given[name])
            shown = f'"$ONCECRON_{name.upper()}"' if secret else shell_quoted(given[name])
            options += f" --{name} {shown}"
    return options


def read_elsewhere(text: str, namespace: str) -> str:
    """Return a text whose commands mean this namespace: where it is read, another one may be set."""
    return naming(text, {} if namespace == NAMESPACE.default else {NAMESPACE.name: namespace})


def naming(text: str, given: Mapping[str, str]) -> str:
    """Return a text whose commands in backquotes name the store that was typed, unless they name one.

    So nobody has to think of it where a message is written.
    """
    options = _where_typed(given)
    before, *rest = text.split("`oncecron ") if options else [text]
    found = (each.partition("`") for each in rest)
    return before + "".join(
        with_options(words, "" if " --store " in words else options) + after
        for words, _, after in found
    )
