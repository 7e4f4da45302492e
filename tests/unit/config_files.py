"""Configuration files of a test's own, with no file of the machine beside them."""

import os
from pathlib import Path

import pytest

from oncecron.config.options import RUN_OPTIONS
from oncecron.config.settings import Settings


@pytest.fixture
def only_this_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the machine and no environment but the test's."""
    for name in list(os.environ):
        if name.startswith("ONCECRON_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("oncecron.config.file.SYSTEM_FILE", str(tmp_path / "etc.toml"))


def put(path: Path, text: str, mode: int = 0o600) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def settings(key: str = "billing", **given: str) -> Settings:
    """Return the settings of `run` with some options typed."""
    return Settings(RUN_OPTIONS, {name.replace("_", "-"): v for name, v in given.items()}, key)
