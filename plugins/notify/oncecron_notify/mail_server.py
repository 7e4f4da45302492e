"""The mail server of a channel: what `smtp = "HOST:PORT"` and the names beside it mean. `smtp` sends."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAMES = ("smtp", "tls", "user", "password_file")
_WAYS = ("starttls", "tls", "none")
_SUBMISSION = 587  # RFC 6409
_SUBMISSIONS = 465  # RFC 8314: TLS from the first byte


class MailServer(NamedTuple):
    """A server that takes mail by SMTP, and who sends it."""

    host: str
    port: int
    tls: str
    """One of `_WAYS`; `none`: in the clear, and then without a login."""
    sender: str
    """The address of the envelope."""
    user: str | None = None
    password: str | None = None

    @property
    def shown(self) -> str:
        """Where it is."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def server_of(given: Mapping[str, Any], sender: str | None, password: str | None) -> MailServer:
    """Return what the values of `NAMES` mean. Raises `ValueError`, the name first."""
    if "smtp" not in given:
        raise ValueError(f'{next(iter(given))}: set smtp = "HOST:PORT" too')
    host, port = _place(given["smtp"])
    tls = given.get("tls", "tls" if port == _SUBMISSIONS else "starttls")
    if tls not in _WAYS:
        raise ValueError(f"tls: {tls!r} is not one of {', '.join(_WAYS)}")
    user = given.get("user")
    if ("user" in given) != ("password_file" in given):
        raise ValueError("user: user and password_file need each other; set both, or none")
    if user is not None and tls == "none":
        raise ValueError("tls: none would send the password in the clear; leave tls out")
    for name, text in (("user", user), ("password_file", password)):
        if text is not None and not _is_login(text):
            raise ValueError(f"{name}: a login has one line of printable ASCII letters")
    return MailServer(host, port, tls, _envelope(sender), user, password)


def _place(value: Any) -> tuple[str, int]:
    from urllib.parse import urlsplit  # noqa: PLC0415 - of a mail server alone

    try:
        parts = urlsplit(f"//{value}")
        port = _SUBMISSION if parts.port is None else parts.port
        is_place = _is_login(value) and parts.netloc == value and not set(value) & set("@ ")
    except ValueError:
        is_place = False
    if not is_place or not parts.hostname or not port:
        raise ValueError(f"smtp: {value!r} is not a mail server; write HOST:PORT")
    return parts.hostname, port


def _is_login(text: Any) -> bool:
    return isinstance(text, str) and text != "" and text.isascii() and text.isprintable()


def _envelope(sender: str | None) -> str:
    address = (sender or "").rpartition("<")[2].rstrip("> ")
    if "@" not in address or " " in address or not _is_login(address):
        raise ValueError(
            'from: a mail server needs the address of the sender; set from = "NAME@HOST"'
        )
    return address
