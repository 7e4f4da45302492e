"""The channels of `oncecron notify`: mail, HTTP, a command. What each is configured with, and how it gets a message.

A new channel is a row of `KINDS`, with the functions that read its target and send to it.

A message is acknowledged when sendmail has queued it (exit status 0) or the mail server has taken it (250), when the
server has answered with a status 2xx, or when the command has ended with exit status 0. All else is a `ChannelError`,
and is sent again at the next pass.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.options import BOURNE_SHELL, LOG, STORE
from oncecron.config.ping_table import is_like
from oncecron.core.masking import masked_line, shown_url, visible
from oncecron.host.stderr import complain
from oncecron.watch.within import within
from oncecron_notify import message as form
from oncecron_notify.notify_times import CHANNEL_TIMEOUT, LAST_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from oncecron.watch.findings import Finding
    from oncecron.watch.http_request import Request
    from oncecron_notify.mail_server import MailServer
    from oncecron_notify.message import Message

# ruff: noqa: PLC0415 - who reads the configuration file sends nothing

_FORMS: dict[str, Callable[[Message], str]] = {
    "text": form.text,
    "json": form.as_json,
    **{name: partial(form.chat, form=chat) for name, chat in form.CHATS.items()},
}
_SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
_ERROR_SHOWN = 200
"""How many characters of what a program prints are shown."""
_PIPE = 1 << 16
"""Bytes that a pipe holds (pipe(7))."""


class ChannelError(Exception):
    """A message was not acknowledged."""


class Channel(NamedTuple):
    """Where messages are sent."""

    name: str
    kind: str
    """One of `KINDS`."""
    target: str
    """The addresses, the URL, or the command for the shell."""
    form: str
    """One of the forms of its kind."""
    keys: tuple[str, ...] = ("*",)
    """The keys that it is for; `*` in them stands for any characters."""
    timeout: float = CHANNEL_TIMEOUT
    sender: str | None = None
    server: MailServer | None = None
    """Where mail is sent to; None: to sendmail."""
    findings: tuple[str, ...] = ()
    """The kinds that it is for; empty: all."""
    states: tuple[str, ...] = ("warning", "critical")
    """The states that it is for."""
    lasting: float = 0.0
    """How long a finding must last before it is told, in seconds."""
    zone: str | None = None
    """The time zone in which it shows times; None: UTC."""

    def is_for(self, found: Finding) -> bool:
        """Return whether a finding is sent here. One that is about no key is for the keys of every channel."""
        if found.state not in self.states or (self.findings and found.finding not in self.findings):
            return False
        keys = found.named()
        return not keys or any(map(self.has_key, keys))

    def has_key(self, key: str) -> bool:
        """Return whether findings about a key are sent here."""
        return any(is_like(key, each) for each in self.keys)

    @property
    def shown(self) -> str:
        """Where it sends to, without what may be a secret."""
        return (shown_url if KINDS[self.kind].is_secret else masked_line)(self.target)


class Kind(NamedTuple):
    """A kind of channel, by the name of its target in a section [notify.channel.NAME]."""

    target: Callable[[str, Any], str]
    """Returns the target that a value of this name means. Raises `ValueError`, the name first."""
    forms: tuple[str, ...]
    """The forms of a message; the first one is the default."""
    send: Callable[[Channel, Message], None]
    """Sends a message. Raises `ChannelError`."""
    is_secret: bool = False
    """Whether the target may be a secret, and may stand in a file of its own: NAME_file."""
    has_sender: bool = False
    """Whether `from` and the names of a mail server have a meaning."""


def render(channel: Channel, message: Message) -> str:
    """Return a message in the form of a channel."""
    return _FORMS[channel.form](message)


def send(channel: Channel, message: Message) -> None:
    """Send a message. Raises `ChannelError`."""
    KINDS[channel.kind].send(channel, message)


# Mail


def _addresses(name: str, value: Any) -> str:
    addresses = value if isinstance(value, list) and value else [value]
    for address in addresses:
        _line(name, address)
        is_wrong = any(sign in address for sign in (" ", "<", "://")) or address[0] == "-"
        if is_wrong or not address.isascii():
            raise ValueError(f"to: {address!r} is not a mail address; write NAME@HOST")
    return ", ".join(addresses)


def _mail(channel: Channel, message: Message) -> None:
    if channel.server is None:
        _run([_sendmail(), "-i", "-t"], mail_of(channel, message), channel.timeout, {}, "sendmail")
        return
    from oncecron_notify import smtp

    def mail(refused: Sequence[str]) -> bytes:
        return mail_of(channel, message, refused)

    where = channel.server.shown
    try:
        refused = smtp.send(channel.server, channel.target.split(", "), mail, channel.timeout)
    except smtp.SmtpError as error:
        raise ChannelError(f"{where}: {error}") from error
    if refused:
        why = f"{where}: refused for {'; '.join(refused)}; the other addresses have the mail"
        if message.test:
            raise ChannelError(why)
        complain(f"channel {channel.name}: {why}")


def mail_of(channel: Channel, message: Message, refused: Sequence[str] = ()) -> bytes:
    """Return a mail as sendmail reads it. The same message has the same Message-ID.

    `refused`: the addresses that do not get it, for those that do.
    """
    from email.message import EmailMessage
    from email.policy import SMTP
    from email.utils import formatdate

    # 7bit: not every server on the way has 8BITMIME; sendmail takes lines as they are on this host.
    mail = EmailMessage(policy=SMTP.clone(linesep="\n", cte_type="7bit"))
    mail["To"] = channel.target
    if channel.sender:
        mail["From"] = channel.sender
    mail["Subject"] = form.summary(message)
    mail["Date"] = formatdate(message.at)
    mail["Message-ID"] = f"<{message.message_id}@oncecron.invalid>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation answers this
    missing = "".join(f"This mail was refused for {each}\n" for each in refused)
    mail.set_content(form.mail(message) + missing, charset="utf-8")
    return mail.as_bytes()


def _sendmail() -> str:
    found = shutil.which("sendmail") or next(filter(os.path.exists, _SENDMAIL), None)
    if found is None:
        raise ChannelError(
            'sendmail was not found; set smtp = "HOST:PORT" for this channel, or install a mail program such as '
            "msmtp-mta"
        )
    return found


# A URL


def url_of(name: str, value: Any) -> str:
    """Return a URL. Raises `ValueError`, which does not show it: it may be a secret."""
    from urllib.parse import urlsplit

    try:
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError  # noqa: TRY301 - as below
        parts = urlsplit(value)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (AttributeError, ValueError):
        is_usable = False
    if not is_usable:
        raise ValueError(f"{name}: this is not a URL; write https://HOST/PATH or http://HOST/PATH")
    return str(value)


def _post(channel: Channel, message: Message) -> None:
    from oncecron.watch.http_request import Request

    body = render(channel, message).encode()
    headers = (("Idempotency-Key", message.message_id),)
    kind = "application/json; charset=utf-8"
    _ask(Request("POST", channel.target, body, kind, headers), channel.timeout)


def ping(url: str, timeout: float) -> None:
    """Ask for a URL. Raises `ChannelError`."""
    from oncecron.watch.http_request import Request

    _ask(Request("GET", url), timeout)


def _ask(request: Request, timeout: float) -> None:
    from oncecron.watch import http_request

    try:
        http_request.send(request, timeout)
    except http_request.RequestError as error:
        raise ChannelError(f"{shown_url(request.url)}: {error}") from error


# A command


def _line(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"{name} must be a text of one line")
    return value


def _pipe(channel: Channel, message: Message) -> None:
    command = [BOURNE_SHELL, "-c", channel.target]
    text = render(channel, message).encode()
    _run(command, text, channel.timeout, _facts(message), "the command")


def _facts(message: Message) -> dict[str, str]:
    return {
        "ONCECRON_NOTIFY_ID": message.message_id,
        "ONCECRON_NOTIFY_CHANNEL": message.channel,
        "ONCECRON_NOTIFY_STATE": message.state,
        "ONCECRON_NOTIFY_SUMMARY": form.summary(message),
        "ONCECRON_NOTIFY_CHANGES": str(len(message.changes)),
        "ONCECRON_NOTIFY_OPEN": str(message.open),
    }


def _run(
    command: list[str], given: bytes, timeout: float, facts: Mapping[str, str], what: str
) -> None:
    """Give a program its standard input and wait for it; on a timeout kill it and what it has started."""
    import subprocess
    import tempfile

    from oncecron.run import process_tree
    from oncecron.run.program import as_execvp

    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (STORE.environment, LOG.environment)
    }
    read_end, write_end = os.pipe()
    said = bytearray()

    def listen() -> None:  # to the end: what it prints fills neither the memory nor a disk
        with open(read_end, "rb", buffering=0) as printed:
            while chunk := printed.read(_PIPE):
                said.extend(chunk[: _ERROR_SHOWN - len(said)])

    def start(file: str, words: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            executable=file,
            stdin=message,
            stdout=subprocess.DEVNULL,
            stderr=write_end,
            env={**environment, **facts},
            start_new_session=True,
        )

    def kill() -> None:
        # Its group alone: channels are sent to beside each other, and a tree would reap the others' programs.
        with contextlib.suppress(OSError):  # it has ended, or may not be signalled
            os.killpg(process.pid, signal.SIGKILL)

    listener = Thread(target=listen, daemon=True)
    listener.start()
    with tempfile.TemporaryFile() as message:
        message.write(given)
        message.seek(0)
        process_tree.restore_core_limit()  # ours is off: a core would have the password of the store
        try:
            process = as_execvp(start, command[0], command)
        except OSError as error:
            raise ChannelError(f"{what} cannot be started: {error.strerror}") from error
        finally:
            process_tree.refuse_core()
            os.close(write_end)
        try:
            within(timeout, process.wait, kill)
        except TimeoutError:
            raise ChannelError(
                f"{what} has not ended within {timeout:g} s and was killed"
            ) from None
    listener.join(LAST_WORDS)
    if process.returncode:
        shown = visible(" ".join(said.decode("utf-8", "replace").split()))
        raise ChannelError(
            f"{what} failed with {_status(process.returncode)}{shown and f': {shown}'}"
        )


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"


KINDS = {
    "to": Kind(_addresses, ("text",), _mail, has_sender=True),
    "url": Kind(url_of, ("json", *form.CHATS), _post, is_secret=True),
    "command": Kind(_line, ("text", "json"), _pipe),
}
