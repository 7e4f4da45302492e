"""A real SMTP server on loopback that keeps what it gets, and a program that mails to it as sendmail does."""

import email
import email.policy
import ssl
import sys
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from servers.process import free_port

SENDMAIL = """#!{python}
import email.parser, email.policy, email.utils, smtplib, sys
assert sys.argv[1:] == ["-i", "-t"], sys.argv
raw = sys.stdin.buffer.read()
mail = email.parser.BytesParser(policy=email.policy.default).parsebytes(raw)
to = [address for _, address in email.utils.getaddresses(mail.get_all("To", []))]
with smtplib.SMTP("127.0.0.1", {port}, timeout=20) as server:
    server.sendmail("root@localhost", to, raw.replace(b"\\n", b"\\r\\n"))
"""


class Mail(NamedTuple):
    """One mail as it has arrived."""

    to: list[str]
    """The addresses of the envelope."""
    sender: str
    """Likewise."""
    content: EmailMessage


class SmtpSink:
    """A server that is up until `close`; with a certificate it offers STARTTLS, or speaks TLS `at_once`."""

    def __init__(
        self, certificate: Path | None = None, *, at_once: bool = False, login: tuple[str, str] | None = None
    ) -> None:  # fmt: skip
        self.mails: list[Mail] = []
        self.received: list[str] = []
        """The Message-ID of each mail that has come, acknowledged or not."""
        self.logins: list[tuple[str, str]] = []
        self.login = login
        """The user and the password that it wants."""
        self.refusal: str | None = None
        """The reply to a mail that is refused, such as `451 try later`; empty: the connection is closed."""
        self.refused: dict[str, str] = {}
        """The replies to addresses."""
        self.port = free_port()
        settings: dict[str, Any] = {"hostname": "127.0.0.1", "port": self.port}
        if login:
            settings |= {"authenticator": self._authenticate, "auth_require_tls": False}
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            settings["ssl_context" if at_once else "tls_context"] = context
        self._controller = Controller(self, **settings)
        self._controller.start()

    def _authenticate(self, *given: Any) -> AuthResult:
        login = given[-1]
        assert isinstance(login, LoginPassword)
        self.logins.append((login.login.decode(), login.password.decode()))
        if self.logins[-1] == self.login:
            return AuthResult(success=True)
        message = f"535 5.7.8 no such login: {login.password.decode()}"
        return AuthResult(success=False, handled=False, message=message)

    def sendmail_in(self, directory: Path) -> Path:
        """Write a program `sendmail` into a directory for PATH, and return it."""
        program = directory / "sendmail"
        program.write_text(SENDMAIL.format(python=sys.executable, port=self.port))
        program.chmod(0o755)
        return program

    def close(self) -> None:
        self._controller.stop()

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address not in self.refused:
            envelope.rcpt_tos.append(address)
        return self.refused.get(address, "250 OK")

    async def handle_DATA(self, server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        content: Any = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.received.append(content["Message-ID"])
        if self.refusal is not None:
            if not self.refusal:
                server.transport.abort()
            return self.refusal
        self.mails.append(Mail(list(envelope.rcpt_tos), envelope.mail_from, content))
        return "250 OK"
