"""The certificate that docs/drill.md shows looks as a drill prints it; one takes too long for a snippet."""

import dataclasses
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Database, RedisServer
from servers.oncecron import CONSOLE_SCRIPT
from snippet_source import ROOT

from oncecron.stores.address import parse_address
from oncecron.stores.redis.explain import acl_rule
from oncecron_drill.cli import OPTIONS
from oncecron_drill.drill import Request
from oncecron_drill.history import History
from oncecron_drill.history_file import LARGEST, VERSION

LABEL = 14
APART = "outside the promise"
FIXED = ("oncecron", "drill", "firings", APART)
"""The lines whose words depend on no fault."""


def shown(page: str) -> list[str]:
    """Return the output of `oncecron drill --yes` on a page."""
    [block] = re.findall(
        r"^```console\n\$ oncecron drill --yes\n(.*?)^```",
        (ROOT / page).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return str(block).splitlines()


def rows(lines: list[str]) -> dict[str, str]:
    """Return the text beside each label."""
    found: dict[str, str] = {}
    for line in lines[1:]:
        apart = line[LABEL:].strip() and line.startswith(APART)
        label = APART if apart else line[:LABEL].strip() or next(reversed(found), "")
        found[label] = f"{found.get(label, '')} {line[LABEL:].strip()}".strip()
    return found


def shape(text: str) -> str:
    """Return a text without its numbers and times."""
    return re.sub(r"[0-9][0-9.:TZ-]*", "N", text)


def drilled(url: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Drill for as short a time as there is."""
    words = ("--yes", "--minutes", "0.1", "--hosts", "2", "--keys", "2", "--seed", "7")
    return subprocess.run(
        [str(CONSOLE_SCRIPT), "drill", "--store", url, *words],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": str(home)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.turns(1, "drill")
@pytest.mark.slow
def test_the_whole_certificate_is_as_it_is_printed(database: Database, public_path: Path) -> None:
    """The same lines in the same order; where the words do not depend on a fault, the same words."""
    printed = drilled(database.url("owner"), public_path)
    certificate = printed.stdout.partition("\n\nVIOLATION")[0].splitlines()
    assert certificate, printed.stderr
    whole = shown("docs/drill.md")
    assert certificate[0].startswith("oncecron drill: ")
    assert max(map(len, (*certificate, *whole))) <= 80
    ours, theirs = rows(whole), rows(certificate)
    assert [*ours] == [*theirs]
    assert [shape(ours[label]) for label in FIXED] == [shape(theirs[label]) for label in FIXED]


def test_the_load_is_the_one_that_is_announced() -> None:
    """The page has the figure that a drill says before it begins."""
    given = {option.name: option.default for option in OPTIONS}
    hosts, keys = int(given["hosts"] or 0), int(given["keys"] or 0)
    request = Request(parse_address("local"), "local", 2.0, hosts, keys, 7)
    said = f"With {hosts} hosts and {keys} keys: {request.firings_a_second:.1f} firings a second"
    assert said in (ROOT / "docs" / "drill.md").read_text()


def test_the_page_of_the_file_has_its_version_and_its_parts() -> None:
    """Each part of a history, and what is refused."""
    page = (ROOT / "docs" / "drill-history.md").read_text()
    for field in dataclasses.fields(History):
        assert f"`{field.name}`" in page
    assert f"| `version` | {VERSION} |" in page
    assert (
        f"it has version {VERSION + 1} of the format, and this oncecron reads version {VERSION};"
        in page
    )
    assert f"larger than {LARGEST >> 20} MiB" in page


@pytest.mark.turns(1, "drill")
@pytest.mark.slow
def test_a_login_with_the_rights_of_the_page_can_drill(
    new_redis: Callable[..., RedisServer], public_path: Path
) -> None:
    """On Redis, beside those that it has for oncecron; each of them is needed."""
    server = new_redis(aof=True)
    admin = server.connect()
    admin.execute_command(*acl_rule("oncecron", "oncecron", login="on >secret"))
    url = server.url(login="oncecron:secret")
    assert drilled(url, public_path).returncode == 78
    [line] = re.findall(r"ACL SETUSER .*", (ROOT / "docs" / "drill.md").read_text())
    words = shlex.split(line)
    admin.execute_command(*words)
    admin.config_resetstat()
    printed = drilled(url, public_path)
    assert printed.stdout.startswith("oncecron drill: "), printed.stderr
    assert admin.keys("oncecron_drill*") == []
    used = {name.removeprefix("cmdstat_").replace("|", "") for name in admin.info("commandstats")}
    assert {word[1:] for word in words if word.startswith("+")} <= used
