"""Without the folder of a plugin, the program installs, and the tests that are left pass."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VENV = Path(sys.prefix)
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "dist"
)
LARGEST = 1 << 16
"""Of a program of an environment that is a text, in bytes."""
STAMP = """
source <(sed '/^set_up_[a-z]*$/d' tests/environment.sh)
echo "dependencies $(dependencies_digest)" >"$venv/.installed"
"""
"""What says that everything but oncecron is installed."""


def environment_without_oncecron(place: Path) -> None:
    """Make a test environment that shares all packages with this one, but for oncecron."""
    [packages] = (VENV / "lib").glob("python3*/site-packages")
    (place / "bin").mkdir(parents=True)
    (place / "lib64").symlink_to("lib")
    shutil.copy(VENV / "pyvenv.cfg", place)
    here = place / packages.relative_to(VENV)
    here.mkdir(parents=True)
    for entry in packages.iterdir():
        if not entry.name.startswith("oncecron"):
            (here / entry.name).symlink_to(entry)
    for program in (VENV / "bin").iterdir():
        own = place / "bin" / program.name
        if program.is_symlink():
            own.symlink_to(os.readlink(program))
        elif program.stat().st_size > LARGEST:
            own.symlink_to(program)
        elif not program.name.startswith("oncecron"):
            own.write_text(program.read_text().replace(str(VENV), str(place)))
            own.chmod(0o755)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.turns(1)
@pytest.mark.parametrize("name", sorted(each.name for each in (ROOT / "plugins").iterdir()))
def test_the_tests_that_are_left_pass_without_a_plugin(name: str, tmp_path: Path) -> None:
    """Those of units and quick stories, of the core and the other plugins; one by the seed, in the long form each."""
    venv, tree = tmp_path / "venv", tmp_path / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=NOT_COPIED)
    shutil.rmtree(tree / "plugins" / name)
    environment_without_oncecron(venv)
    assert told(tree, venv, "bash", "-ec", STAMP)[0] == 0
    folders = [each for name in ("unit", "acceptance") for each in tree.glob(f"**/tests/{name}")]
    chosen = ["-q", "-n", "2", "-m", "quick and not slow"]
    status, text = told(tree, venv, "tests/run", *chosen, *sorted(folders))
    assert status == 0, text[-6000:]


def told(place: Path, venv: Path, *words: object) -> tuple[int, str]:
    """Return how a command ends there, with this test environment, and what it says."""
    environment = os.environ | {"ONCECRON_TEST_VENV": str(venv)}
    done = subprocess.run(
        [*map(str, words)], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr
