"""The stories of docs/items.md: the lines that would have prevented them, run word for word as cron runs them.

Only the place of the programs is another one: `/usr/bin/` and `/usr/local/bin/` are a directory of the test, with
oncecron and a stand-in for each.
"""

import re
import time
from collections import Counter
from pathlib import Path

import pytest
from log_of import Store
from servers import eventually
from servers.oncecron import CONSOLE_SCRIPT, Oncecron
from servers.process import descendants, wait_gone

PAGE = Path(__file__).parents[4] / "docs" / "items.md"
PROGRAMS = re.compile("/usr/(?:local/)?bin/")
BY_DAY = {"TZ": f"Etc/GMT{time.gmtime().tm_hour - 14:+d}"}
"""The lines are for some hour of the night. It is afternoon, so the next night is far away."""


def prevention(title: str) -> str:
    """Return the command of the crontab line that would have prevented a story."""
    _, _, story = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")
    told, _, cure = story.partition("\n## ")[0].partition("What would have prevented it:\n")
    assert told
    assert cure
    [line] = re.findall(r"^```crontab\n(.*)\n```$", cure, re.MULTILINE)
    fields = line.split(None, 5)
    assert len(fields) == 6
    return str(fields[5])


class Shop:
    """Programs that list and mail customers, and the provider's account of what was sent."""

    def __init__(self, directory: Path) -> None:
        self.programs = directory / "bin"
        self.programs.mkdir()
        (self.programs / "oncecron").symlink_to(CONSOLE_SCRIPT)
        self._customers = directory / "customers"
        self._sent = directory / "sent"
        for path in (self._customers, self._sent):
            path.touch()
            path.chmod(0o666)
        self.program("list-users", f"exec cat {self._customers}")

    def program(self, name: str, script: str) -> None:
        """Install a program."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def mailer(self, name: str, before: str = "") -> None:
        """Install a program that mails its argument, unless what stands before that does not let it."""
        self.program(name, f'{before}\necho "$1 $ONCECRON_ITEM_ID" >>{self._sent}')

    def customers(self, *names: str) -> None:
        """Set who is listed."""
        self._customers.write_text("".join(f"{name}\n" for name in names))

    def mails(self) -> Counter[str]:
        """Return how many mails each customer got."""
        return Counter(line.split()[0] for line in self._sent.read_text().splitlines())

    def ids(self) -> dict[str, str]:
        """Return the idempotency key with which each customer was mailed last."""
        return dict(line.split() for line in self._sent.read_text().splitlines())

    def line(self, title: str) -> list[str]:
        """Return the words with which cron runs the line of a story."""
        command = PROGRAMS.sub(f"{self.programs}/", prevention(title))
        return [
            "/bin/sh",
            "-c",
            f"exec {command}",
        ]  # some shells wait instead: the test kills the firing


@pytest.fixture
def shop(public_path: Path) -> Shop:
    """Give a shop."""
    return Shop(public_path)


def on(host: Oncecron, words: list[str]) -> Oncecron:
    """Return a host whose cron runs these words."""
    program = Path(words[0])
    there = Oncecron("", Path(host.environment["HOME"]), script=program)
    there.environment = {**host.environment, **BY_DAY}
    return there


@pytest.mark.slow
def test_nobody_gets_it_eleven_times(store: Store, host: Oncecron, shop: Shop) -> None:
    """The job is killed in the middle, the provider answers with an error, and the line is started ten times more."""
    users = [f"user-{number}" for number in range(1, 31)]
    shop.customers(*users)
    sending, error = shop.programs / "sending", shop.programs / "error"
    dies = f'[ "$1" != user-17 ] || {{ touch {sending}; exec sleep 60; }}'
    fails = f'[ "$1" != user-5 ] || [ -e {error} ] || {{ touch {error}; exit 75; }}'
    shop.mailer("send-digest", f"{dies}\n{fails}")
    words = shop.line("Everybody got it eleven times")
    cron = on(host, words)
    firing = cron.start(*words[1:])
    eventually(sending.exists, 60)
    parts = descendants(firing.process.pid)
    firing.process.kill()
    firing.wait()
    wait_gone(parts)
    assert 0 < sum(shop.mails().values()) < len(users)
    again = [cron(*words[1:]) for _ in range(10)]
    assert shop.mails() == Counter(set(users) - {"user-17"})
    assert "1 in doubt" in next(told.err for told in again if told.err)
    lost = host("items", "digest", "--state", "lost", "--format", "csv").out.decode()
    assert "user-17" in lost
    assert lost.count("\n") == 2  # the heading, and one item


@pytest.mark.slow
def test_a_new_host_does_not_send_it_again(
    store: Store, host: Oncecron, new_host: "object", shop: Shop
) -> None:
    """It mails those who are new, each with an id of its own that is the same on every host."""
    shop.customers("ann", "bob")
    shop.mailer("send-offer")
    words = shop.line("A new host sent it again")
    assert on(host, words)(*words[1:]).status == 0
    before = shop.ids()
    shop.customers("ann", "bob", "carl")
    replaced = new_host("host-b")  # type: ignore[operator]
    assert on(replaced, words)(*words[1:]).status == 0
    assert shop.mails() == Counter(("ann", "bob", "carl"))
    assert {name: shop.ids()[name] for name in before} == before
    assert len(set(shop.ids().values())) == 3
