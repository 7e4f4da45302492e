"""`oncecron report`: one page, true, harmless, and there whole or not at all."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from answers import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from log_of import Store
    from servers.oncecron import Oncecron

UTC = {"TZ": "UTC"}
HOSTILE = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
CONTROLS = "\x1b[2J\u202etxt\x7f"


def text_of(page: bytes) -> str:
    """Return the text of a page, with one blank between its words."""
    plain = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page.decode(), flags=re.DOTALL)
    return re.sub(r" (?=[,;.] )", "", " ".join(html.unescape(plain).split()))


def test_it_says_what_check_and_why_say(past: Oncecron) -> None:
    """The findings with their account, each key with its last runs, and the hosts."""
    past.environment |= UTC
    ended = past("report", "--html", "-")
    assert (ended.status, ended.err) == (0, "")
    text = text_of(ended.out)
    assert "2 keys, 2 failed; 2 hosts fire." in text
    for finding in json.loads(past("check", "--json").out)["findings"]:
        assert f"{finding['key']}" in text
        assert finding["reason"] in text
        *_, last = json.loads(past("why", finding["key"], "--json").out)["account"]
        assert " ".join(last.replace("`", "").split()) in text
    assert "Last 2: 1 failed, 1 succeeded" in text
    assert "host-a" in text
    assert "host-b" in text
    only = text_of(past("report", "--html", "-", "report").out)
    assert "1 key, 1 failed;" in only
    assert "billing" not in only


def test_what_others_have_written_is_text(
    store: Store, new_host: Callable[..., Oncecron], operator: Oncecron
) -> None:
    """A host, a user's reason, a command, its output and an item, from the hands of somebody who means harm."""
    strange = new_host(HOSTILE, PYTHONUTF8="1")
    strange.environment["XDG_STATE_HOME"] = new_host().environment["XDG_STATE_HOME"]
    job = ("sh", "-c", f"printf '%s\\n' '{IMAGE}' '{CONTROLS}'; exit 3")
    strange.run("k", "--tick", "</svg><iframe>", "--capture", "1k", "--", *job)
    strange("each", "--key", "e", "--tick", "1", "--items", f"echo '{IMAGE}'", "--", "false", "{}")
    operator("pause", "k", "--reason", IMAGE)
    page = strange("report", "--html", "-").out.decode()
    assert not re.findall(r"<(?:script|img|iframe)|<[^>]*\son\w+=", page)
    assert not set("\x1b\u202e\x7f").intersection(page)
    text = text_of(page.encode())
    for told in (HOSTILE, IMAGE, "</svg><iframe>", r"\x1b[2J\u202etxt\x7f"):
        assert told in text, told


def test_the_file_is_replaced_whole_or_not_at_all(past: Oncecron, public_path: Path) -> None:
    """A file that cannot be written stays as it is, and nothing lies about."""
    place = public_path / "www"
    place.mkdir()
    page = place / "index.html"
    assert past("report", "--html", page) == (0, b"", "")
    before = page.read_bytes()
    code = f"from oncecron.cli.whole_file import replace; replace({str(page)!r}, b'x' * 9000)"
    limited = ["bash", "-c", 'ulimit -f 4; exec "$@"', "sh", sys.executable, "-P", "-B", "-c", code]
    full = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert f"OutputError: cannot write {page}: File too large" in full.stderr
    refused(past("report", "--html", page, "--store", "sqlite:////none/x.db"), 78, "/none")
    refused(past("report", "--html", page, "nobody"), 66, "no host has fired key nobody")
    assert page.read_bytes() == before
    assert sorted(os.listdir(place)) == ["index.html"]


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ([], 64, "--html is missing; write --html FILE, or --html - to print the page"),
        (["--html", "-", "--since", "2999-01-01"], 64, "--since: 2999-01-01 is not in the past"),
        (["--html", "/dev/null"], 74, "cannot write /dev/null: it is not a regular file"),
        (["--html", "/"], 74, "cannot write /: it is not a regular file"),
        (["--html", "/none/x.html"], 74, "cannot write /none/x.html: No such file or directory"),
        (["--html", "-", "bilings"], 66, "did you mean billing?"),
    ],
)
def test_what_cannot_be_is_one_line(
    past: Oncecron, words: list[str], status: int, told: str
) -> None:
    """A device is not replaced, and nothing is printed."""
    refused(past("report", *words), status, told)


@pytest.mark.turns(1)
@pytest.mark.parametrize("since", ["1s", "2h", "365d", "1970-01-02"])
def test_a_timeline_may_be_short_or_long(past: Oncecron, since: str) -> None:
    """From a second to ten years."""
    assert past("report", "--html", "-", "--since", since).status == 0


def test_a_store_without_keys_has_a_page(host: Oncecron) -> None:
    """It says so."""
    assert host("init").status == 0
    assert "0 keys, all well; 0 hosts fire." in text_of(host("report", "--html", "-").out)
