"""The table [notify] of the configuration file: what it means, and what is wrong in it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from oncecron.cli.config import check_file
from oncecron.config.file import read_file
from oncecron.core.errors import ConfigurationError
from oncecron_notify.channels import Channel
from oncecron_notify.mail_server import MailServer
from oncecron_notify.notify_table import NOTIFY_KEY, parse_notify, read_notify

if TYPE_CHECKING:
    from pathlib import Path

HOOK = "https://hooks.slack.com/services/T0/B0/s3cret"
A_DURATION = "expected a number and a unit (ms, s, m, h, d), such as 90s, 15m or 1h30m"


def written(path: Path, text: str, mode: int = 0o600) -> str:
    """Write a configuration file."""
    file = path / "oncecron.toml"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def problems(path: Path, text: str, mode: int = 0o600) -> list[str]:
    """Return what `config check` finds, without the path."""
    file = written(path, text, mode)
    found = list(map(str, check_file(file)))
    assert all("s3cret" not in each for each in found)
    return [each.removeprefix(file).strip() for each in found]


def test_channels_have_their_kind_and_form(tmp_path: Path) -> None:
    """By what they have; the rest has defaults."""
    (tmp_path / "secret").write_text(f"{HOOK}\n")
    (tmp_path / "secret").chmod(0o600)
    file = written(
        tmp_path,
        '[notify]\nremind = "1d"\nfailures = 3\nslow = 5\nignore = "overrun"\ncritical = "slow"\n'
        'ping_url = "https://hc.example.com/uuid"\n'
        '[notify.channel.ops]\nto = ["ops@example.com", "root"]\nfrom = "cron@example.com"\n'
        '[notify.channel.chat]\nurl_file = "secret"\nform = "slack"\nkeys = ["bill*", "a/b"]\n'
        '[notify.channel."x.y"]\nurl = "http://[::1]:8080/hook"\ntimeout = "5s"\n'
        '[notify.channel.log]\ncommand = "logger -t cron"\nform = "json"\n',
    )
    notify, wrong = read_notify(read_file(file))
    assert not wrong
    assert notify.channels == (
        Channel("ops", "to", "ops@example.com, root", "text", sender="cron@example.com"),
        Channel("chat", "url", HOOK, "slack", ("bill*", "a/b")),
        Channel("x.y", "url", "http://[::1]:8080/hook", "json", timeout=5.0),
        Channel("log", "command", "logger -t cron", "json"),
    )
    assert notify.channels[1].shown == "https://hooks.slack.com/***"
    secret = notify.channels[3]._replace(target="curl -su u:s3cret https://h/")
    assert secret.shown == "curl -su u:***"
    limits = notify.limits
    assert (notify.remind, limits.failures, limits.slow) == (86400.0, 3, 5)
    assert [limits.states[kind] for kind in ("overrun", "slow", "failed")] == [0, 2, 2]
    assert notify.ping_url == "https://hc.example.com/uuid"
    assert problems(tmp_path, (tmp_path / "oncecron.toml").read_text()) == []
    chat = notify.channels[1]
    assert [chat.has_key(key) for key in ("billing", "a/b", "a/c")] == [True, True, False]


def test_a_channel_chooses_what_it_is_told(tmp_path: Path) -> None:
    """Findings, states, how long one has to last, and the zone of its times."""
    file = written(
        tmp_path,
        '[notify]\nremind = "never"\nmissed_after = "20m"\nsilent_after = "1h"\n'
        '[notify.channel.pager]\ncommand = "page"\nfindings = ["missed", "lost"]\nstates = ["critical"]\n'
        'for = "5m"\ntz = "Europe/Berlin"\n',
    )
    notify, wrong = read_notify(read_file(file))
    assert not wrong
    [pager] = notify.channels
    chosen = (pager.findings, pager.states, pager.lasting, pager.zone)
    assert chosen == (("missed", "lost"), ("critical",), 300.0, "Europe/Berlin")
    limits = notify.limits
    assert (notify.remind, limits.missed_after, limits.silent_after) == (None, 1200.0, 3600.0)
    usual, _ = read_notify(read_file(written(tmp_path, '[notify.channel.ops]\ncommand = "x"\n')))
    assert (usual.remind, usual.limits.missed_after, usual.limits.silent_after) == (86400, 600, 900)


OPS = "[notify.channel.ops]\n"
MAIL = f'{OPS}to = "a@b"\nsmtp = "mail.example.com"\n'
LOGIN = "user = 'x'\npassword_file = 'password'\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("notify = 1", ": notify must be a table: [notify]"),
        ("notfy.x = 1", ": unknown key 'notfy'; did you mean [notify]?"),
        ("[notify]\nremnd = 1", "[notify]: unknown key 'remnd'; did you mean remind?"),
        ("[notify.ops]\nto = 'a@b'", "[notify]: unknown section [notify.ops]; a channel is [notify.channel.ops]"),
        ("[notify.chanel.ops]\nto = 'a@b'", "[notify]: unknown key 'chanel'; did you mean channel?"),
        ("[notify]\nremind = '1s'", "[notify]: remind: '1s' is too small; the minimum is 600 s"),
        (
            "[notify]\nremind = 'x'",
            f"[notify]: remind: bad duration 'x', no number at 'x': {A_DURATION}; or never",
        ),
        ("[notify]\nremind = true", "[notify]: remind: True is neither a text nor a number"),
        ("[notify]\nfailures = 0", "[notify]: failures: '0' is too small; the minimum is 1"),
        ("[notify]\nignore = 'faild'", "[notify]: ignore: 'faild' is not one of missed, "),
        ("[notify]\nchannel = 1", "[notify]: channel must be tables: [notify.channel.NAME]"),
        ("[notify.channel]\nops = 1", "[notify.channel.ops]: a channel must be a table"),
        ("[notify]\nping_url = 'ftp://x/s3cret'", "[notify]: ping_url: this is not a URL; write"),
        (OPS, "[notify.channel.ops]: set exactly one of to, url, url_file, command"),
        (OPS + "to = 'a@b'\nurl = 'http://x/'", "[notify.channel.ops]: set exactly one of"),
        (OPS + "to = 'a b'", "[notify.channel.ops]: to: 'a b' is not a mail address; write"),
        (OPS + "to = '-x@b'", "[notify.channel.ops]: to: '-x@b' is not a mail address"),
        (OPS + 'to = "a@b\\nBcc: c@d"', "[notify.channel.ops]: to must be a text of one line"),
        (OPS + "to = []", "[notify.channel.ops]: to must be a text of one line"),
        (OPS + "to = 'a@b'\nform = 'json'", "[notify.channel.ops]: form: 'json' is not one of"),
        (OPS + "to = 'a@b'\nfrom = 3", "[notify.channel.ops]: from must be a mail address"),
        (MAIL + "", "[notify.channel.ops]: from: a mail server needs the address of the sender; set"),
        (MAIL + "from = 'Cron'", "[notify.channel.ops]: from: a mail server needs the address of"),
        (MAIL + "from = 'a@b'\ntls = 'ssl'", "[notify.channel.ops]: tls: 'ssl' is not one of starttls, tls, none"),
        (MAIL + "from = 'a@b'\nuser = 'x'", "[notify.channel.ops]: user: user and password_file need each"),
        (MAIL + "from = 'a@b'\npassword_file = 'none'", "[notify.channel.ops]: password_file: "),
        (MAIL + "from = 'a@b'\npassword_file = 3", "[notify.channel.ops]: password_file must be the path"),
        (MAIL + "from = 'a@b'\npassword = 'x'", "[notify.channel.ops]: unknown key 'password'; did you mean"),
        (MAIL + f"from = 'a@b'\n{LOGIN}tls = 'none'", "[notify.channel.ops]: tls: none would send the password"),
        (MAIL + "from = 'a@b'\nuser = 'x'\npassword_file = 'empty'", "[notify.channel.ops]: password_file: a"),
        (OPS + "to = 'a@b'\nfrom = 'a@b'\nsmtp = 'smtp://x'", "[notify.channel.ops]: smtp: 'smtp://x' is not a"),
        (OPS + "to = 'a@b'\nfrom = 'a@b'\nsmtp = 'x:0'", "[notify.channel.ops]: smtp: 'x:0' is not a mail"),
        (OPS + "to = 'a@b'\nfrom = 'a@b'\nsmtp = 'x:99999'", "[notify.channel.ops]: smtp: 'x:99999' is not"),
        (OPS + "to = 'a@b'\nfrom = 'a@b'\nsmtp = 'u@x'", "[notify.channel.ops]: smtp: 'u@x' is not a mail"),
        (OPS + "to = 'a@b'\nfrom = 'a@b'\nsmtp = 25", "[notify.channel.ops]: smtp: 25 is not a mail server"),
        (OPS + "to = 'a@b'\nuser = 'x'", '[notify.channel.ops]: user: set smtp = "HOST:PORT" too'),
        (OPS + "url = 'http://x/'\nsmtp = 'x'", "[notify.channel.ops]: unknown key 'smtp'; known keys: command"),
        (OPS + "url = 'file:///etc/passwd'", "[notify.channel.ops]: url: this is not a URL"),
        (OPS + "url = 'https:///s3cret'", "[notify.channel.ops]: url: this is not a URL"),
        (OPS + "url = 'https://x/a s3cret'", "[notify.channel.ops]: url: this is not a URL"),
        (OPS + "url = 'https://x:0/'", "[notify.channel.ops]: url: this is not a URL"),
        (OPS + "url = 3", "[notify.channel.ops]: url: this is not a URL"),
        (OPS + "url = 'http://x/'\nfrom = 'a@b'", "[notify.channel.ops]: unknown key 'from'; did"),
        (OPS + "url_file = 3", "[notify.channel.ops]: url_file must be the path of a file"),
        (OPS + "url_file = 'none'", "[notify.channel.ops]: url_file: "),
        (OPS + "command = ''", "[notify.channel.ops]: command must be a text of one line"),
        (OPS + "command = 'x'\nkeys = 'a'", "[notify.channel.ops]: keys must be a list of keys"),
        (OPS + "command = 'x'\nkeys = ['a b']", "[notify.channel.ops]: keys: no job can have a key such as 'a b'"),
        (OPS + "command = 'x'\ntimeout = '2h'", "[notify.channel.ops]: timeout: '2h' is too large"),
        (OPS + "command = 'x'\nfindings = ['faild']", "[notify.channel.ops]: findings: 'faild' is not one of"),
        (OPS + "command = 'x'\nfindings = []", "[notify.channel.ops]: findings is empty; leave it out"),
        (OPS + "command = 'x'\nstates = ['ok']", "[notify.channel.ops]: states: 'ok' is not one of warning, cr"),
        (OPS + "command = 'x'\nstates = 3", "[notify.channel.ops]: states: 3 is not one of warning"),
        (OPS + "command = 'x'\nfor = '8d'", "[notify.channel.ops]: for: '8d' is too large"),
        (OPS + "command = 'x'\ntz = 'Europe/Belin'", "[notify.channel.ops]: unknown time zone 'Europe/Belin'"),
        (OPS + "command = 'x'\ntz = 3", "[notify.channel.ops]: tz: 3 is no name of a time zone"),
        ("[notify]\nmissed_after = '1s'", "[notify]: missed-after: '1s' is too small; the minimum is 60 s"),
        (OPS + "command = 'x'\nkind = 1", "[notify.channel.ops]: unknown key 'kind'; known keys: "),
        ("[notify.channel.ping_url]\nto = 'a@b'", "[notify.channel.ping_url]: 'ping_url' cannot"),
        ('[notify.channel."a b"]\nto = "a@b"', "[notify.channel.\"a b\"]: 'a b' cannot be the"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    """By `config check`; none of them stops a job."""
    for name, secret in (("password", "s3cret\n"), ("empty", "\n")):
        (tmp_path / name).write_text(secret)
        (tmp_path / name).chmod(0o600)
    [found] = problems(tmp_path, text)
    assert found.startswith(told), found
    file = read_file(written(tmp_path, text))
    with pytest.raises(ConfigurationError):
        read_notify(file)
    assert not any(each.stops for each in (*file.problems, *parse_notify(file)[1]))


def test_a_mistake_stops_no_other_channel(tmp_path: Path) -> None:
    """It keeps the ping of a pass that went well back, and is named."""
    ping = "[notify]\nping_url = 'http://x/y'\n"
    text = f"{ping}{OPS}to = 'a@b'\n[notify.channel.chat]\nurl = 'nothing'\n"
    notify, wrong = read_notify(read_file(written(tmp_path, text)))
    assert [each.name for each in notify.channels] == ["ops"]
    assert notify.ping_url is None
    assert [(each.section, each.keys) for each in wrong] == [
        ("[notify.channel.chat]", (NOTIFY_KEY,))
    ]


@pytest.mark.parametrize("url", [HOOK, "https://chat.example.com/hooks/s3cret", "http://s3cret@h/"])
def test_a_secret_is_not_for_everybody(tmp_path: Path, url: str) -> None:
    """A webhook in a file that all may read is not used; nor is its own file. A host alone is no secret."""
    channel = f'{OPS}url = "{url}"\n'
    assert problems(tmp_path, channel) == []
    [found] = problems(tmp_path, channel, 0o644)
    cure = "move the URL to a file of its own, and name it in url_file"
    assert found == (
        f"[notify.channel.ops]: url: this URL is a secret, and the file is world-readable; {cure}"
    )
    assert problems(tmp_path, f'{OPS}url = "http://alerts.internal:8080/"\n', 0o644) == []
    (tmp_path / "url").write_text(url)
    (tmp_path / "url").chmod(0o644)
    [found] = problems(tmp_path, f'{OPS}url_file = "url"\n', 0o644)
    assert found.endswith(f"holds a secret and is world-readable; run `chmod 640 {tmp_path}/url`")
    [problem] = parse_notify(read_file(written(tmp_path, f'{OPS}url_file = "url"\n')))[1]
    assert not problem.private


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("smtp = 'mail.example.com'", MailServer("mail.example.com", 587, "starttls", "c@b")),
        ("smtp = 'mail.example.com:465'", MailServer("mail.example.com", 465, "tls", "c@b")),
        ("smtp = 'localhost:25'\ntls = 'none'", MailServer("localhost", 25, "none", "c@b")),
        (f"smtp = '[::1]:2525'\n{LOGIN}", MailServer("::1", 2525, "starttls", "c@b", "x", "s3cret ")),
    ],
)  # fmt: skip
def test_a_mail_server_has_its_port_and_its_tls(
    tmp_path: Path, text: str, server: MailServer
) -> None:
    """The password comes from a file that not everybody may read."""
    (tmp_path / "password").write_text("s3cret \n")
    (tmp_path / "password").chmod(0o600)
    whole = f"{OPS}to = 'a@b'\nfrom = 'Cron <c@b>'\n{text}\n"
    [channel] = read_notify(read_file(written(tmp_path, whole, 0o644)))[0].channels
    assert channel.server == server
    if server.password:
        (tmp_path / "password").chmod(0o644)
        [found] = problems(tmp_path, whole)
        assert "/password: it holds a secret and is world-readable; run `chmod 640 " in found


def test_to_read_the_table_imports_no_mail_and_no_tls() -> None:
    """`config check` reads it, and so does each host that is skipped."""
    code = "import sys, oncecron_notify.notify_table; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "oncecron_notify.mail_server" in loaded
    assert not any(f"'{each}'" in loaded for each in ("smtplib", "ssl", "email.message"))


def test_without_a_channel_there_is_nothing_to_notify(tmp_path: Path) -> None:
    """The message says where to add one."""
    with pytest.raises(ConfigurationError, match=r"add a section \[notify.channel.NAME\] to"):
        read_notify(read_file(written(tmp_path, "[notify]\nremind = '1d'\n")))
