"""The first alert of docs/monitoring.md: commands and crontab as printed, on a host with a real cron and a mailbox."""

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import CronHost
from servers.oncecron import CONSOLE_SCRIPT, Oncecron

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## The first alert in five minutes\n")[2]
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", SECTION.partition("\n## ")[0], re.MULTILINE | re.DOTALL
)
(PREPARATION, BREAKAGE) = (text for language, text in BLOCKS if language == "sh")
(CRONTAB,) = (text for language, text in BLOCKS if language == "crontab")
(MAIL,) = (text for language, text in BLOCKS if language == "text")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def home(public_path: Path) -> Path:
    """Give ann a home directory."""
    return public_path


@pytest.fixture
def host(home: Path) -> Iterator[CronHost]:
    """Give web1, whose clock stands a minute before the next look at all keys."""
    before = f"HOME={home}\nXDG_STATE_HOME={home}/state\n"
    crontab = before + CRONTAB.replace("/usr/local/bin/oncecron", str(CONSOLE_SCRIPT))
    # The crontab is read, and the job fails once, before the check.
    to_the_check = 300 - (time.time() + 60 + 5) % 300
    host = CronHost("web1", crontab, skew=to_the_check)
    yield host
    host.remove()


def shell(home: Path, text: str) -> None:
    """Run commands of the page as ann."""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    subprocess.run(["/bin/sh", "-ec", text], env=environment, check=True, timeout=30)


def test_the_first_alert_comes_by_mail(host: CronHost, home: Path) -> None:
    """The only mail, with the words that the page shows; before the job fails, there is none."""
    shell(home, PREPARATION)
    local = Oncecron("local", home, HOME=str(home), XDG_STATE_HOME=str(home / "state"))
    assert (
        local.run(
            "import-orders", "--schedule", "* * * * *", "--", "test", "-e", str(home / "orders.csv")
        ).status
        == 0
    )
    assert local("check").status == 0
    shell(home, BREAKAGE)
    host.start()
    mail = host.wait_mail(lambda _: True, 150)
    subject, _, body = MAIL.partition("\n\n")
    script = subject.replace("/usr/local/bin/oncecron", str(CONSOLE_SCRIPT)).replace(
        "ann@", "root@"
    )
    assert script in mail.splitlines()
    assert "To: ann" in mail.splitlines()
    assert re.fullmatch(expected(body), mail.partition("\n\n")[2])
    assert host.mails() == [mail]


def expected(body: str) -> str:
    """Return a pattern for a body: only how often the job has failed differs."""
    parts = body.split(", 2 runs in a row")
    return r"(?:, \d+ runs in a row)?".join(map(re.escape, parts)) + r"\n?"
