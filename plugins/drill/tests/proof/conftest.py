"""What the tests of the checker begin with."""

import pytest
from invented import Invented


@pytest.fixture
def run() -> Invented:
    """Give a history in which one host has run a tick."""
    run = Invented()
    run.run()
    return run
