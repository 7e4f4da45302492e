"""Send one mail by SMTP: TLS is verified, and no password leaves this host in the clear.

A mail is acknowledged by the server's 250 after its last line, and by nothing else. A server may refuse some of the
addresses before that. The others get the mail then, which names those that do not: sent again, it would reach them at
each pass.
"""

from __future__ import annotations

import os
import smtplib
import ssl
from base64 import b64encode
from contextlib import closing, suppress
from socket import SHUT_RDWR

from oncecron.core.errors import OncecronError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.masking import MASK, visible
from oncecron.watch.within import within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from socket import socket
    from typing import Any

    from oncecron_notify.mail_server import MailServer

    Mail = Callable[[Sequence[str]], bytes]

_DONE = 250
_LARGEST = 1 << 20
"""In bytes, of all replies to one mail, also to a thousand recipients."""
_REPLY_SHOWN = 200
"""How many characters of a server's reply are shown."""


class SmtpError(OncecronError):
    """A mail was not acknowledged."""


def send(server: MailServer, recipients: Sequence[str], mail: Mail, timeout: float) -> list[str]:
    """Send a mail; return the addresses that were refused, each with the reply.

    `mail` gets these and returns the mail with lines that end in a line feed. Raises `SmtpError` after `timeout`
    seconds at the latest.
    """
    exchange = _Exchange(server, timeout)
    try:
        return within(timeout, lambda: exchange.send(recipients, mail), exchange.give_up)
    except (OSError, ValueError) as error:  # also each SMTPException
        raise SmtpError(exchange.why(error)) from None


class _Replies:
    """The lines of a server: smtplib keeps as many in one reply as are sent."""

    def __init__(self, connection: socket) -> None:
        self._stream = connection.makefile("rb")
        self._left = _LARGEST
        self.close = self._stream.close

    def readline(self, most: int) -> bytes:
        line = self._stream.readline(most)
        self._left -= len(line)
        if self._left < 0:
            raise ValueError(f"the server's answer is larger than {_LARGEST >> 20} MB")
        return line


class _Bounded:
    """A mixin in front of smtplib's clients."""

    file: Any

    def getreply(self: Any) -> tuple[int, bytes]:
        """Return the next reply."""
        if self.file is None:
            self.file = _Replies(self.sock)
        try:
            reply: tuple[int, bytes] = super().getreply()  # type: ignore[misc]
        except ValueError:
            self.close()  # smtplib does so after an `OSError`
            raise
        return reply


class _Smtp(_Bounded, smtplib.SMTP):
    """A connection that may be encrypted later."""


class _SmtpOverTls(_Bounded, smtplib.SMTP_SSL):
    """A connection that is encrypted from the first byte."""


class _Exchange:
    def __init__(self, server: MailServer, timeout: float) -> None:
        self._server = server
        self._timeout = timeout
        self._step = "the connection"
        self._connection: smtplib.SMTP | None = None
        self._is_over = False

    def send(self, recipients: Sequence[str], mail: Mail) -> list[str]:
        """Carry it out. Raises `OSError`, `ValueError`, `SmtpError`."""
        with closing(self._connect()) as connection:
            self._greet(connection)
            if self._server.tls == "starttls":
                self._secure(connection)
            if self._server.user is not None:
                self._log_in(connection, self._server.user, self._server.password or "")
            self._begin("MAIL FROM")
            sender = self._server.sender
            self._check(*connection.mail(sender), f"the sender {sender}")
            refused = self._refused(connection, recipients)
            self._begin("DATA")
            self._check(*connection.data(mail(refused).replace(b"\n", b"\r\n")), "the mail")
            with suppress(OSError):
                connection.putcmd("QUIT")  # its answer changes nothing
            return refused

    def give_up(self) -> None:
        """Let nothing more be sent: the mail is sent again at the next pass."""
        self._is_over = True
        with suppress(OSError, AttributeError):  # not connected yet
            self._connection.sock.shutdown(SHUT_RDWR)  # type: ignore[union-attr]

    def why(self, error: OSError | ValueError) -> str:
        """Return what has happened at this step."""
        if isinstance(error, TimeoutError):
            at_once = self._step == "the connection" and self._server.tls != "tls"
            hint = '; a server that speaks TLS at once needs tls = "tls"' if at_once else ""
            return f"no answer to {self._step} within {self._timeout:g} s{hint}"
        if isinstance(error, smtplib.SMTPResponseException):
            if error.smtp_code < 0:  # smtplib: the reply does not begin with a number
                return "the server does not speak SMTP; correct smtp"
            return self._refusal(self._step, error.smtp_code, error.smtp_error)
        if isinstance(error, smtplib.SMTPServerDisconnected):
            return f"the server closed the connection at {self._step}"
        if isinstance(error, ssl.SSLError):
            return self._why_no_tls(error)
        text = (isinstance(error, OSError) and error.strerror) or str(error)
        return f"{self._step}: {self._shown(text)}"

    def _why_no_tls(self, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is refused: {error.verify_message}"
        why = (error.reason or "it failed").replace("_", " ").lower()
        cure = '; set tls = "starttls"' if self._step == "the connection" else ""
        return f"no TLS at {self._step}: {why}{cure}"

    def _connect(self) -> smtplib.SMTP:
        host, port, tls = self._server[:3]
        name = "localhost"  # without one, smtplib asks the name server for it
        timeout = self._timeout + 1  # `within` is the first to end the wait
        if tls == "tls":
            context = ssl.create_default_context()
            self._connection = _SmtpOverTls(host, port, name, timeout=timeout, context=context)
        else:
            self._connection = _Smtp(host, port, name, timeout=timeout)
        return self._connection

    def _greet(self, connection: smtplib.SMTP) -> None:
        self._begin("EHLO")
        self._check(*connection.ehlo(_own_name(connection)), "EHLO")

    def _secure(self, connection: smtplib.SMTP) -> None:
        self._begin("STARTTLS")
        if not connection.has_extn("starttls"):
            raise SmtpError(
                'the server offers no STARTTLS, and nothing was sent; use another port, or tls = "none" without a '
                "login for a server in your own network"
            )
        connection.starttls(context=ssl.create_default_context())
        self._greet(connection)

    def _log_in(self, connection: smtplib.SMTP, user: str, password: str) -> None:
        self._begin("the login")
        if not connection.has_extn("auth"):
            raise SmtpError("the server offers no login; leave out user and password_file")
        try:
            connection.login(user, password)
        except smtplib.SMTPAuthenticationError as error:
            why = self._refusal(f"the login of {user}", error.smtp_code, error.smtp_error)
            raise SmtpError(f"{why}; correct user and password_file") from None

    def _refused(self, connection: smtplib.SMTP, recipients: Sequence[str]) -> list[str]:
        refused = []
        for address in recipients:
            self._begin(f"RCPT TO {address}")
            code, reply = connection.rcpt(address)
            if code not in (_DONE, _DONE + 1):  # 251: it is forwarded
                refused.append(f"{address}: {self._reply(code, reply)}")
        if len(refused) == len(recipients):
            raise SmtpError(f"refused for {'; '.join(refused)}")
        return refused

    def _begin(self, step: str) -> None:
        if self._is_over:
            raise TimeoutError
        self._step = step

    def _check(self, code: int, reply: bytes, what: str) -> None:
        if code != _DONE:
            raise SmtpError(self._refusal(what, code, reply))

    def _refusal(self, what: str, code: int, reply: bytes | str) -> str:
        return f"{what} was refused: {self._reply(code, reply)}"

    def _reply(self, code: int, reply: bytes | str) -> str:
        text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
        return f"{code} {self._shown(text)}"

    def _shown(self, text: str) -> str:
        """Return the beginning of a text on one line, without the password, which a server may repeat."""
        user, password = self._server.user, self._server.password
        if password:
            encoded = [
                b64encode(each.encode()).decode() for each in (f"\0{user}\0{password}", password)
            ]
            for secret in (*encoded, password):
                text = text.replace(secret, MASK)
        return visible(" ".join(text.split()))[:_REPLY_SHOWN]


def _own_name(connection: smtplib.SMTP) -> str:
    """Return the full name of this host, else its address: some servers take nothing shorter (RFC 5321, 4.1.3)."""
    name = os.uname().nodename
    if "." in name and name.isascii():
        return name
    address = connection.sock.getsockname()[0] if connection.sock else "127.0.0.1"
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"
