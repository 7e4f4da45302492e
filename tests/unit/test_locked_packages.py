"""The lock files have every package that a pyproject.toml requires, in a version that it accepts, with hashes."""

import ast
import itertools
import re
import sys
import tomllib
from importlib import metadata

import pytest
from documents import ROOT, sources
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import oncecron

PLACES = (".", "plugins/drill", "plugins/web")
if not all((ROOT / path).exists() for path in PLACES):
    pytest.skip("what is locked is for all distributions", allow_module_level=True)
DISTRIBUTIONS = {
    path: tomllib.loads((ROOT / path / "pyproject.toml").read_text(encoding="utf-8"))
    for path in PLACES
}
RUNS = {path: each["project"]["dependencies"] for path, each in DISTRIBUTIONS.items()}
MAIN = DISTRIBUTIONS["."]
EXTRAS = [each for extra in MAIN["project"]["optional-dependencies"].values() for each in extra]
BUILD = MAIN["build-system"]["requires"]
REQUIRED = {f"{path}/requirements.txt": needed for path, needed in RUNS.items()}
REQUIRED["tests/requirements.txt"] = [*itertools.chain(*RUNS.values()), *EXTRAS, *BUILD]
LOCKED = re.compile(
    r"^([\w.-]+)==([\w.]+)(?: ; (.*?))? \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE
)


def locked(path: str) -> dict[str, list[tuple[str, str | None]]]:
    """Return the versions of each package with their markers."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    for name, version, marker, hashes in LOCKED.findall((ROOT / path).read_text(encoding="utf-8")):
        assert re.fullmatch(r"(\s*--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", hashes), name
        found.setdefault(canonicalize_name(name), []).append((version, marker or None))
    return found


@pytest.mark.parametrize("path", REQUIRED)
def test_a_lock_file_has_what_is_required(path: str) -> None:
    """If it does not, run tools/lock.py."""
    there = locked(path)
    for text in REQUIRED[path]:
        requirement = Requirement(text)
        if requirement.name == "oncecron":
            continue
        wanted = [canonicalize_name(requirement.name)]
        wanted += [canonicalize_name(f"{requirement.name}-{extra}") for extra in requirement.extras]
        for name in wanted:
            assert there.get(name), f"{path} lacks {name}"
            for version, _ in there[name]:
                assert version in requirement.specifier, f"{path}: {name} {version}, not {text}"


@pytest.mark.parametrize("path", REQUIRED)
def test_every_line_of_a_lock_file_has_hashes(path: str) -> None:
    """A package without them would be installed as it comes."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    packages = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert len(packages) == sum(map(len, locked(path).values()))


def test_the_tests_run_with_the_locked_versions() -> None:
    """Each package that this Python needs, in the version that its markers choose."""
    for name, versions in locked("tests/requirements.txt").items():
        here = [version for version, marker in versions if not marker or Marker(marker).evaluate()]
        if here:
            assert here == [metadata.version(name)], name


@pytest.mark.parametrize("path", DISTRIBUTIONS)
def test_what_a_distribution_requires_suffices(path: str) -> None:
    """Whatever a command imports, wherever it does, is in the standard library, or comes with its distribution."""
    required = {canonicalize_name(Requirement(text).name) for text in [*RUNS["."], *RUNS[path]]}
    found = metadata.packages_distributions()
    packages = DISTRIBUTIONS[path]["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = {(ROOT / path / package).resolve() for package in packages}
    for module in sources():
        if folders.isdisjoint(module.parents):
            continue
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names:
                if name.startswith(("oncecron", "_")):  # a part of an interpreter
                    continue
                of = {canonicalize_name(each) for each in found.get(name, [])}
                assert of & required, f"{module}: {name} is not installed by default"


def test_every_module_is_in_one_distribution() -> None:
    """And each distribution beside that of the host requires its very version."""
    packages = [
        (ROOT / path / package).resolve()
        for path, each in DISTRIBUTIONS.items()
        for package in each["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ]
    for module in sources():
        assert len([each for each in packages if each in module.parents]) == 1, module
    for path in DISTRIBUTIONS:
        assert path == "." or f"oncecron=={oncecron.__version__}" in RUNS[path]


@pytest.mark.parametrize("path", DISTRIBUTIONS)
def test_all_lock_the_same_versions(path: str) -> None:
    """What is tested is what is installed."""
    tested = locked("tests/requirements.txt")
    for name, versions in locked(f"{path}/requirements.txt").items():
        assert {version for version, _ in versions} <= {version for version, _ in tested[name]}, (
            name
        )
