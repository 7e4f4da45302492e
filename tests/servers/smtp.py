"""A real SMTP server on loopback that keeps what it gets, and a program that mails to it as sendmail does."""

import email
import email.policy
import sys
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller

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
    content: EmailMessage


class SmtpSink:
    """A server that is up until `close`."""

    def __init__(self) -> None:
        self.mails: list[Mail] = []
        self.refusal: str | None = None
        """The reply to a mail that is refused, such as `451 try later`."""
        self.port = free_port()
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()

    def sendmail_in(self, directory: Path) -> Path:
        """Write a program `sendmail` into a directory for PATH, and return it."""
        program = directory / "sendmail"
        program.write_text(SENDMAIL.format(python=sys.executable, port=self.port))
        program.chmod(0o755)
        return program

    def close(self) -> None:
        """Stop the server."""
        self._controller.stop()

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        """Keep a mail."""
        if self.refusal is not None:
            return self.refusal
        content: Any = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append(Mail(list(envelope.rcpt_tos), content))
        return "250 OK"
