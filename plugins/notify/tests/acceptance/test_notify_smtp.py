"""Mail of `oncecron notify` by a mail server: STARTTLS, a login, and what servers do wrong."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from servers import Certificates, SmtpSink
from servers.oncecron import Oncecron

Sinks = Callable[..., SmtpSink]
FAILING = ("--no-tick", "--", "sh", "-c", "exit 3")
PASSWORD = "s3cret-pass"
LOGIN = ("cron", PASSWORD)


@pytest.fixture
def new_sink() -> Iterator[Sinks]:
    """Give a function that starts a mail server."""
    with ExitStack() as stack:

        def make(*arguments: Any, **options: Any) -> SmtpSink:
            sink = SmtpSink(*arguments, **options)
            stack.callback(sink.close)
            return sink

        yield make


class Mailer:
    """Writes the configuration file, and gives a host that reads it and trusts the authority `ca`."""

    def __init__(self, directory: Path, new_host: Callable[..., Oncecron], ca: Path) -> None:
        self._file = directory / "notify.toml"
        self._new_host, self._ca = new_host, ca
        password = directory / "password"
        password.write_text(f"{PASSWORD}\n")
        password.chmod(0o600)

    def host(self, port: int, more: str, *, trusting: bool = True) -> Oncecron:
        """Return a host whose channel has a mail server."""
        self._file.write_text(
            '[notify.channel.ops]\nto = ["ops@example.com", "ann@example.com"]\n'
            f'from = "Cron <cron@example.com>"\nsmtp = "127.0.0.1:{port}"\n{more}'
        )
        self._file.chmod(0o600)
        trust = {"SSL_CERT_FILE": str(self._ca)} if trusting else {}
        return self._new_host("host-a", ONCECRON_CONFIG=str(self._file), **trust)


WITH_LOGIN = 'user = "cron"\npassword_file = "password"\n'


@pytest.fixture
def mailer(
    public_path: Path, new_host: Callable[..., Oncecron], certificates: Certificates
) -> Mailer:
    """Give what configures a host."""
    return Mailer(public_path, new_host, certificates["ca.crt"])


@pytest.mark.parametrize(
    ("at_once", "more"), [(False, WITH_LOGIN), (True, f'tls = "tls"\n{WITH_LOGIN}')]
)
def test_a_mail_arrives_once_and_encrypted(
    mailer: Mailer, new_sink: Sinks, certificates: Certificates, at_once: bool, more: str
) -> None:
    """By `--test`, and by a pass: the next pass sends nothing."""
    sink = new_sink(certificates["server.crt"], at_once=at_once, login=LOGIN)
    host = mailer.host(sink.port, more)
    trial = host("notify", "--test")
    assert trial.out == b"channel ops, ops@example.com, ann@example.com: acknowledged\n", trial
    host.run("billing", *FAILING)
    for _ in range(2):
        assert host("notify", "--now").status == 0
    _, mail = sink.mails
    assert (mail.sender, mail.to) == ("cron@example.com", ["ops@example.com", "ann@example.com"])
    assert mail.content["From"] == "Cron <cron@example.com>"
    assert mail.content["Subject"] == "oncecron CRITICAL: billing failed (exit status 3)"
    assert "billing failed" in mail.content.get_content()
    assert sink.logins == [LOGIN] * 2


def wrong_password(sink: SmtpSink) -> None:
    """Want another one."""
    sink.login = ("cron", "other")


def refuse_addresses(reply: str) -> Callable[[SmtpSink], None]:
    """Refuse every address."""

    def refuse(sink: SmtpSink) -> None:
        sink.refused = dict.fromkeys(("ops@example.com", "ann@example.com"), reply)

    return refuse


def refuse(reply: str) -> Callable[[SmtpSink], None]:
    """Refuse the mail; an empty reply: close the connection after it."""

    def refuse_it(sink: SmtpSink) -> None:
        sink.refusal = reply

    return refuse_it


def mend(sink: SmtpSink) -> None:
    """Take everything."""
    sink.refusal, sink.refused, sink.login = None, {}, LOGIN


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (wrong_password, "the login of cron was refused: 535 5.7.8 no such login: ***; correct user and password_file"),
        (refuse_addresses("450 4.2.0 greylisted"), "refused for ops@example.com: 450 4.2.0 greylisted; ann@"),
        (refuse_addresses("550 5.1.1 no such user"), "refused for ops@example.com: 550 5.1.1 no such user; ann@"),
        (refuse("554 5.7.1 looks like spam"), "the mail was refused: 554 5.7.1 looks like spam"),
        (refuse("451 4.3.0 try later"), "the mail was refused: 451 4.3.0 try later"),
        (refuse(""), "the server closed the connection at DATA"),
    ],
    ids=["login", "greylisted", "unknown", "spam", "later", "dropped"],
)  # fmt: skip
def test_what_is_not_acknowledged_is_sent_again(
    mailer: Mailer,
    new_sink: Sinks,
    certificates: Certificates,
    spoil: Callable[[SmtpSink], None],
    why: str,
) -> None:
    """As the same mail; no line has the password."""
    sink = new_sink(certificates["server.crt"], login=LOGIN)
    host = mailer.host(sink.port, WITH_LOGIN)
    host.run("billing", *FAILING)
    spoil(sink)
    for _ in range(2):
        ended = host("notify", "--now")
        assert ended.status == 1
        assert f"oncecron: channel ops: 127.0.0.1:{sink.port}: {why}" in ended.err
        assert PASSWORD not in ended.err + host("check", "--json").out.decode()
    assert sink.mails == []
    mend(sink)
    assert host("notify", "--now").status == 0
    assert host("notify", "--now").status == 0
    [mail] = sink.mails
    assert set(sink.received) == {mail.content["Message-ID"]}


def test_no_password_is_sent_where_others_may_read_it(
    mailer: Mailer, new_sink: Sinks, certificates: Certificates
) -> None:
    """A server without STARTTLS, or with a certificate of nobody known, gets neither the password nor the mail."""
    bare = new_sink(login=LOGIN)
    ended = mailer.host(bare.port, WITH_LOGIN)("notify", "--test")
    assert "the server offers no STARTTLS, and nothing was sent; use another port, or" in ended.err
    unknown = new_sink(certificates["server.crt"], login=LOGIN)
    host = mailer.host(unknown.port, WITH_LOGIN, trusting=False)
    assert "its certificate is refused: " in host("notify", "--test").err
    assert [sink.logins + sink.received for sink in (bare, unknown)] == [[], []]


def test_an_address_that_is_refused_is_named_to_the_others(mailer: Mailer, new_sink: Sinks) -> None:
    """They get the mail once, and it says who does not; cron mails that too, and `--test` fails."""
    sink = new_sink()
    sink.refused = {"ann@example.com": "550 5.1.1 no such user"}
    host = mailer.host(sink.port, 'tls = "none"\n')
    host.run("billing", *FAILING)
    said = (
        f"127.0.0.1:{sink.port}: refused for ann@example.com: 550 5.1.1 no such user; "
        "the other addresses have the mail\n"
    )
    assert host("notify").err == f"oncecron: channel ops: {said}"
    assert host("notify", "--now").err == ""
    [mail] = sink.mails
    text = mail.content.get_content()
    assert mail.to == ["ops@example.com"]
    assert text.splitlines()[-1] == (
        "This mail was refused for ann@example.com: 550 5.1.1 no such user"
    )
    trial = host("notify", "--test")
    assert (trial.status, trial.err.endswith(said)) == (1, True)
