"""What the tests of reading commands ask for, and how a command that fails has to look."""

import json
from typing import Any

from servers.oncecron import Ended, Oncecron


def answer(host: Oncecron, *arguments: object) -> list[dict[str, Any]]:
    ended = host(*arguments, "--json")
    assert (ended.status, ended.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(ended.out)
    return found


def refused(ended: Ended, status: int, *told: str) -> None:
    """Check that a command failed with one line that tells something, and printed nothing."""
    assert (ended.status, ended.out) == (status, b""), ended
    assert ended.err.startswith("oncecron: ")
    assert ended.err.count("\n") == 1
    for words in told:
        assert words in ended.err
