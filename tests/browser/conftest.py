"""Fixtures: pages of a made-up fleet."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from browser import Shown
from fleet import Fleet


@pytest.fixture
def show(browser: Browser) -> Iterator[Callable[..., Shown]]:
    """Give a function that shows a page: (url, width, scheme)."""
    with ExitStack() as stack:

        def opened(url: str, width: int = 1400, scheme: str = "light") -> Shown:
            shown = Shown(browser, url, width, scheme)
            stack.callback(shown.close)
            return shown

        yield opened


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Give the fleet of the pictures, whose store is a file."""
    found = Fleet(str(tmp_path_factory.mktemp("fleet") / "jobs.db"))
    found.fill()
    return found
