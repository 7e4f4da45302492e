"""Read the address of a store (--store), and mask its password."""

from __future__ import annotations

import os

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.masking import MASK, login_secret
from oncecron.core.masking import masked as masked  # noqa: PLC0414 - a store imports it from here

if TYPE_CHECKING:
    from typing import Literal

    Hold = Literal["yes", "no", "auto"]

DEFAULT_NAMESPACE = "oncecron"
_KNOWN = "postgresql://USER@HOST/DATABASE, redis://HOST, sqlite:///ABSOLUTE/PATH or local"
_REDIS = ("redis", "rediss", "valkey", "valkeys")
_REDIS_SCHEMES = (
    *_REDIS,
    "unix",
    *(f"{base}+{kind}" for base in _REDIS for kind in ("sentinel", "cluster")),
)
_OTHERS = ("postgresql", "postgres", "sqlite")
_MEANT = {
    **dict.fromkeys(("pg", "psql", "pgsql", "postgre", "postgress", "postgressql"), "postgresql"),
    **dict.fromkeys(("sqlite3", "file"), "sqlite"),
    "redis+tls": "rediss",
    "redis+ssl": "rediss",
    "redis+unix": "unix",
    "redis+socket": "unix",
    "sentinel": "redis+sentinel",
    "redis-sentinel": "redis+sentinel",
    "rediss-sentinel": "rediss+sentinel",
    "cluster": "redis+cluster",
    "redis-cluster": "redis+cluster",
    "rediss-cluster": "rediss+cluster",
}


_HOLDS: dict[str, Hold] = {"yes": "yes", "no": "no", "auto": "auto"}


class Address(NamedTuple):
    """The address of a store."""

    kind: Literal["postgres", "redis", "sqlite"]
    target: str
    """A libpq connection string, the URL of a Redis store, or an absolute path."""
    options: tuple[tuple[str, str], ...] = ()
    """For Redis: the table [redis] of the configuration file. The URL takes precedence."""
    hold: Hold = "auto"
    """For PostgreSQL: whether a running job holds its connection (`?hold=`, which libpq does not know)."""

    @property
    def lease_clock(self) -> int:
        """The clock by which trust in this store's leases ends."""
        return clock.MONOTONIC if self.kind == "sqlite" else clock.BOOTTIME


def parse_address(text: str) -> Address:
    """Read the address of a store. Raises `ConfigurationError` with the cure."""
    text = text.strip()
    if not text:
        cure = "a message has $ONCECRON_STORE in place of a URL with a password: set it to that URL"
        raise ConfigurationError(f"it is empty (an unset variable?); {cure}")
    if text == "local":
        return Address("sqlite", os.path.join(state_directory(), "oncecron.db"))
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme = text.partition(":")[0]
        raise ConfigurationError(f"{masked(text)!r} is not a store; write {_meant(text, scheme)}")
    if scheme in ("postgresql", "postgres"):
        _check_login(text)
        return _postgres_address(text)
    if scheme in _REDIS_SCHEMES:
        _check_login(text)
        return Address("redis", text)
    if scheme == "sqlite":
        return Address("sqlite", _sqlite_path(rest, text))
    meant = _MEANT.get(scheme) or _kind_in_lower_case(scheme)
    if meant:
        raise ConfigurationError(f"{masked(text)!r}: unknown kind {scheme!r}; write {meant}://")
    if scheme not in masked(text):  # a password in front of it
        scheme = MASK
    base, plus, driver = scheme.partition("+")
    if plus and base in ("postgresql", "postgres", "sqlite"):
        raise ConfigurationError(
            f"{masked(text)!r}: drop '+{driver}' (a driver's name has no place here)"
        )
    from oncecron.core.suggestion import unknown  # noqa: PLC0415 - for an error message alone

    wrong = unknown(
        "kind",
        scheme,
        (*_REDIS_SCHEMES, *_OTHERS),
        otherwise=f"write {_KNOWN}",
        shown=lambda kind: f"{kind}://",
    )
    raise ConfigurationError(f"{masked(text)!r}: {wrong}")


def _meant(text: str, scheme: str) -> str:
    if text.startswith("/") and not any(
        sign in text for sign in "@:"
    ):  # no address without its kind
        return f"sqlite://{text}"
    if text.lower() == "local":
        return "local"
    return f"{scheme}://" if scheme in (*_REDIS_SCHEMES, *_OTHERS) else _KNOWN


def _kind_in_lower_case(scheme: str) -> str | None:
    lower = scheme.lower()
    return lower if lower in (*_REDIS_SCHEMES, *_OTHERS) else None


def _postgres_address(text: str) -> Address:
    """Take `hold` out of the parameters; libpq reads all others. The last one counts, as in libpq."""
    before, _, query = text.partition("?")
    hold: Hold = "auto"
    others = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name != "hold":
            others.append(part)
        elif value in _HOLDS:
            hold = _HOLDS[value]
        else:
            raise ConfigurationError(
                f"{masked(text)!r}: hold: invalid value {value!r} (use yes, no or auto)"
            )
    rest = "&".join(others)
    return Address("postgres", f"{before}?{rest}" if rest else before, hold=hold)


def _check_login(text: str) -> None:
    """Refuse an address in which the end of the password, or of the host, can only be guessed."""
    if any(sign in login_secret(text) for sign in "/@?"):
        raise ConfigurationError(
            f"{masked(text)!r}: write / as %2F, @ as %40 and ? as %3F in the password, "
            "and @ as %40 in the database"
        )


def _sqlite_path(rest: str, text: str) -> str:
    if not rest.startswith("/") or len(rest) == 1:
        raise ConfigurationError(
            f"{masked(text)!r}: the path must be absolute, with three slashes: sqlite:///var/lib/jobs.db"
        )
    return os.path.normpath(f"/{rest.lstrip('/')}")  # of two slashes in front, normpath leaves both


def has_password(text: str) -> bool:
    """Return whether an address contains a password."""
    return masked(text) != text


def command_line(words: str, store: str, namespace: str) -> str:
    """Return `oncecron WORDS` for this store and namespace, in backquotes, to be pasted into a shell."""
    return with_options(words, where_options(store, namespace))


def with_options(words: str, options: str) -> str:
    """Return `oncecron WORDS` in backquotes, with more options: before the job's command, if WORDS has one."""
    own, dashes, command = words.partition(" -- ")
    return f"`oncecron {own}{options}{dashes}{command}`"


def again_words(key: str, tick: str | None, command: str, shards: int = 1) -> str:
    """Return the words of `oncecron` that run a tick again; COMMAND stands for what is not on record in full."""
    which = "--no-tick" if tick is None else f"--tick {shell_quoted(tick)}"
    parts = f" --shards {shards}" if shards > 1 else ""
    is_whole = command and MASK not in command and not command.endswith(("...", " characters)"))
    return f"run --key {key} {which} --again{parts} -- {command if is_whole else 'COMMAND'}"


def where_options(store: str, namespace: str) -> str:
    """Return the options that name this store and namespace, with a space before each.

    A password is never shown: $ONCECRON_STORE stands for the URL where it is set, else the configuration file does.
    """
    typed = f" --store {shell_quoted(store)}"
    if MASK in masked(store):
        typed = ' --store "$ONCECRON_STORE"' if os.environ.get("ONCECRON_STORE") else ""
    if namespace != DEFAULT_NAMESPACE:
        typed += f" --namespace {shell_quoted(namespace)}"
    return typed


def shell_quoted(text: str) -> str:
    """Return a text as one word for a shell."""
    import shlex  # noqa: PLC0415 - for error messages alone

    return shlex.quote(text)


def as_role(store: str, role: str) -> str:
    """Return the URL of a PostgreSQL store for another role: without the user, the password and what they open."""
    import urllib.parse  # noqa: PLC0415 - for error messages alone

    scheme, _, rest = masked(store).partition("://")
    authority, slash, path = rest.partition("/")
    hosts = authority.rpartition("@")[2]
    return f"{scheme}://{urllib.parse.quote(role, safe='')}@{hosts}{slash}{path}"


def state_directory() -> str:
    """Return the directory of the spool and the `local` store.

    $XDG_STATE_HOME/oncecron, else /var/lib/oncecron for root, else ~/.local/state/oncecron.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):
        return os.path.join(base, "oncecron")
    if os.geteuid() == 0:
        return "/var/lib/oncecron"
    return os.path.join(home_directory(), ".local/state/oncecron")


def home_directory() -> str:
    """Return $HOME, or the home directory in the password database. Raises `ConfigurationError` without either."""
    home = os.environ.get("HOME", "")
    if home.startswith("/"):
        return home
    import pwd  # noqa: PLC0415 - rarely needed: cron sets HOME

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise ConfigurationError(f"user {os.geteuid()} has no home directory; set $HOME") from None
