"""Send a message to a channel, and wait for its acknowledgement: sendmail, HTTP, or a command.

A message is acknowledged when sendmail has queued it (exit status 0), when the server has answered with a status 2xx,
or when the command has ended with exit status 0. All else is a `ChannelError`, and is sent again at the next pass.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import IO, TYPE_CHECKING

from oncecron.alerts import http_request as request
from oncecron.alerts import message as form
from oncecron.alerts.http_request import Request
from oncecron.alerts.settings import shown_url
from oncecron.config.options import BOURNE_SHELL, LOG, STORE
from oncecron.core.stderr import visible
from oncecron.run import process_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncecron.alerts.message import Message
    from oncecron.alerts.settings import Channel

_FORMS: dict[str, Callable[[Message], str]] = {
    "text": form.text,
    "json": form.as_json,
    "slack": form.slack,
    "mattermost": form.mattermost,
}
_SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
_ERROR_SHOWN = 200
"""How many characters of what a program prints are shown."""


class ChannelError(Exception):
    """A message was not acknowledged."""


def rendered(channel: Channel, message: Message) -> str:
    """Return a message in the form of a channel."""
    return _FORMS[channel.form](message)


def send(channel: Channel, message: Message) -> None:
    """Send a message. Raises `ChannelError`."""
    text = rendered(channel, message)
    if channel.kind == "url":
        post(channel.target, text, message.message_id, channel.timeout)
    elif channel.kind == "command":
        command = [BOURNE_SHELL, "-c", channel.target]
        _run(command, text.encode(), channel.timeout, _facts(message), "the command")
    else:
        mail = mail_of(channel, message, text)
        _run([_sendmail(), "-i", "-t"], mail, channel.timeout, {}, "sendmail")


def mail_of(channel: Channel, message: Message, text: str) -> bytes:
    """Return a mail as sendmail reads it. The same message has the same Message-ID."""
    mail = EmailMessage(policy=SMTP.clone(linesep="\n"))
    mail["To"] = channel.target
    if channel.sender:
        mail["From"] = channel.sender
    mail["Subject"] = form.summary(message)
    mail["Date"] = formatdate(message.at)
    mail["Message-ID"] = f"<{message.message_id}@oncecron.invalid>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation answers this
    mail.set_content(text, charset="utf-8")
    return mail.as_bytes()


def _sendmail() -> str:
    found = shutil.which("sendmail") or next(filter(os.path.exists, _SENDMAIL), None)
    if found is None:
        raise ChannelError("sendmail was not found; install a mail program such as msmtp-mta")
    return found


def _facts(message: Message) -> dict[str, str]:
    """Return what a command gets in its environment."""
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
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (STORE.environment, LOG.environment)
    }
    with (
        tempfile.TemporaryFile() as printed
    ):  # no pipe: what it leaves running would keep that open
        process_tree.restore_core_limit()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=printed,
                env={**environment, **facts},
                start_new_session=True,
            )
        except OSError as error:
            raise ChannelError(f"{what} cannot be started: {error.strerror}") from error
        finally:
            process_tree.refuse_core()
        with process:
            try:
                process.communicate(given, timeout)
            except subprocess.TimeoutExpired as error:
                with contextlib.suppress(OSError):  # it has ended, or may not be signalled
                    os.killpg(process.pid, signal.SIGKILL)
                raise ChannelError(
                    f"{what} has not ended within {timeout:g} s and was killed"
                ) from error
        if process.returncode:
            said = _beginning(printed)
            raise ChannelError(
                f"{what} failed with {_status(process.returncode)}{said and f': {said}'}"
            )


def _beginning(printed: IO[bytes]) -> str:
    """Return the beginning of what a program has printed, on one line."""
    printed.seek(0)
    words = printed.read(_ERROR_SHOWN).decode("utf-8", "replace").split()
    return visible(" ".join(words))


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def post(url: str, text: str, message_id: str, timeout: float) -> None:
    """Send JSON to a URL. Raises `ChannelError`."""
    headers = (("Idempotency-Key", message_id),)
    _ask(Request("POST", url, text.encode(), "application/json; charset=utf-8", headers), timeout)


def ping(url: str, timeout: float) -> None:
    """Ask for a URL. Raises `ChannelError`."""
    _ask(Request("GET", url), timeout)


def _ask(asked: Request, timeout: float) -> None:
    try:
        request.send(asked, timeout)
    except request.RequestError as error:
        raise ChannelError(f"{shown_url(asked.url)}: {error}") from error
