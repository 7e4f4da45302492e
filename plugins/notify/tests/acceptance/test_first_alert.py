"""The first alert of docs/monitoring.md: commands and crontab as printed, on a host with a real cron and a mailbox."""

import email
import email.policy
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import CronHost
from servers.oncecron import CONSOLE_SCRIPT, Oncecron

PAGE = Path(__file__).parents[4] / "docs" / "monitoring.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## The first alert in five minutes\n")[2]
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", SECTION.partition("\n## ")[0], re.MULTILINE | re.DOTALL
)
(PREPARATION, BREAKAGE, REPAIR) = (text for language, text in BLOCKS if language == "sh")
(NOTIFY,) = (text for language, text in BLOCKS if language == "crontab")
(MAIL,) = (text for language, text in BLOCKS if language == "text")
CHECK = """MAILTO=ann
*/5 * * * * out=$(/usr/bin/oncecron check) || echo "$out"
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def home(public_path: Path) -> Path:
    """Give ann a home directory, where she has a store and done what the page says, and the job has run once."""
    configuration = public_path / ".config" / "oncecron" / "config.toml"
    configuration.parent.mkdir(parents=True)
    configuration.write_text('store = "local"\n')  # the page has one already
    shell(public_path, PREPARATION)
    local = Oncecron(
        "local", public_path, HOME=str(public_path), XDG_STATE_HOME=f"{public_path}/state"
    )
    file = public_path / "orders.csv"
    options = ("--schedule", "* * * * *")
    assert local.run("import-orders", *options, "--", "test", "-e", file).status == 0
    assert local("check").status == 0
    return public_path


@pytest.fixture
def new_host(home: Path) -> Iterator[Callable[[str, float], CronHost]]:
    """Give web1 with a crontab, and a clock that is so far ahead."""
    hosts = []

    def new(crontab: str, skew: float) -> CronHost:
        before = f"HOME={home}\nXDG_STATE_HOME={home}/state\n"
        crontab = before + crontab.replace("/usr/bin/oncecron", str(CONSOLE_SCRIPT))
        hosts.append(CronHost("web1", crontab, skew=skew))
        return hosts[0].start()

    yield new
    for host in hosts:
        host.remove()


def shell(home: Path, text: str) -> None:
    """Run commands of the page as ann."""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    subprocess.run(["/bin/sh", "-ec", text], env=environment, check=True, timeout=30)


def shown(mail: str) -> str:
    """Return a mail as the page shows it, with all numbers and durations alike."""
    message = email.message_from_string(mail, policy=email.policy.default)
    text = f"To: {message['To']}\nSubject: {message['Subject']}\n\n{message.get_content()}"
    return alike(text.replace("user root", "user ann"))


def alike(text: str) -> str:
    """Return a text with all numbers, durations and numbers of runs alike."""
    text = re.sub(r"\b[\d.]+m?s\b", "0s", text.strip())
    text = re.sub(r", \d+ runs in a row", "", text)
    return re.sub(r"\d+", "0", text)


def test_a_mail_comes_when_the_job_fails_and_when_it_has_recovered(
    new_host: Callable[[str, float], CronHost], home: Path
) -> None:
    """With the words that the page shows; no other mail. By the true clock: under another one, Python waits wrongly."""
    shell(home, BREAKAGE)
    host = new_host(NOTIFY, 0)
    mail = host.wait_mail(lambda _: True, 200)
    assert shown(mail) == alike(MAIL)
    shell(home, REPAIR)
    recovered = host.wait_mail(lambda text: text != mail, 150)
    assert "Subject: oncecron OK: import-orders is well again" in recovered.splitlines()
    assert host.mails() == [mail, recovered]


def test_cron_mails_what_a_check_prints(
    new_host: Callable[[str, float], CronHost], home: Path
) -> None:
    """The only mail: neither the job nor a look before it failed prints anything."""
    shell(home, BREAKAGE)
    (job,) = (line for line in NOTIFY.splitlines() if "import-orders" in line)
    # The crontab is read, and the job fails once, before the check.
    to_the_check = 300 - (time.time() + 60 + 20) % 300
    host = new_host(f"{job}\n{CHECK}", to_the_check)
    mail = host.wait_mail(lambda _: True, 200)
    assert "To: ann" in mail.splitlines()
    assert "\n\nONCECRON CRITICAL: import-orders failed (exit status 1)" in mail
    assert host.mails() == [mail]
