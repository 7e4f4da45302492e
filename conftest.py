"""What all tests have, those of the core and those of the plugins."""

import sys
from pathlib import Path

sys.path.remove(
    str(Path(__file__).parent)
)  # where pytest has put it: the installed oncecron is tested
pytest_plugins = ["shared"]
