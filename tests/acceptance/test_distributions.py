"""The distributions: what each has and needs, the same bytes from whoever builds it, the host's without the others."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import oncecron

pytestmark = pytest.mark.quick  # on each version of Python
ROOT = Path(__file__).parents[2]
VERSION = oncecron.__version__
NEEDED = {
    "oncecron": {"click", "psycopg", "redis"},
    "oncecron_drill": {f"oncecron=={VERSION}"},
    "oncecron_web": {f"oncecron=={VERSION}", "jinja2", "prometheus-client", "waitress"},
}
"""What each distribution depends on."""
PACKAGES = {
    "oncecron": {"oncecron", "oncecron_crontab", "oncecron_each", "oncecron_notify"},
    "oncecron_drill": {"oncecron_drill"},
    "oncecron_web": {"oncecron_web"},
}
IMPORT_ALL = """\
import importlib, pkgutil
for name in {packages}:
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + chr(46)):
        importlib.import_module(module.name)
"""


def build(tree: Path, *words: object, mask: str = "022", **variables: str) -> None:
    command = ["/bin/sh", "-c", f'umask {mask}; exec "$@"', "sh", sys.executable, "-m", "hatchling"]
    fixed = {"SOURCE_DATE_EPOCH": "1790000000", "ONCECRON_BUILD_RELEASE": "yes"}
    environment = {**os.environ, **fixed, **variables}
    subprocess.run(
        [*command, "build", "-d", *words],
        cwd=tree,
        env=environment,
        check=True,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("built")
    for tree in (ROOT, *(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))):
        build(tree, directory)
    return directory


def wheel_of(name: str, directory: Path) -> Path:
    return directory / f"{name}-{VERSION}-py3-none-any.whl"


@pytest.mark.parametrize("name", NEEDED)
def test_whoever_builds_gets_the_same_bytes(name: str, built: Path, tmp_path: Path) -> None:
    """Of the source and of the wheel, which is also the same when it is built from the source."""
    source = built / f"{name}-{VERSION}.tar.gz"
    _, _, plugin = name.partition("_")
    build(ROOT / "plugins" / plugin if plugin else ROOT, tmp_path, mask="077", TZ="Asia/Tokyo")
    assert (tmp_path / source.name).read_bytes() == source.read_bytes()
    wheel = wheel_of(name, built).read_bytes()
    assert wheel_of(name, tmp_path).read_bytes() == wheel
    with tarfile.open(source) as archive:
        assert {member.name for member in archive if not (member.isfile() or plugin == "")} == set()
    subprocess.run(["tar", "-xf", source, "-C", tmp_path], check=True)
    build(tmp_path / f"{name}-{VERSION}", tmp_path / "again", "-t", "wheel")
    assert wheel_of(name, tmp_path / "again").read_bytes() == wheel


@pytest.mark.parametrize("name", NEEDED)
def test_a_distribution_has_its_packages_and_needs_few_others(name: str, built: Path) -> None:
    """And the licence, and the manual pages of its commands alone."""
    with zipfile.ZipFile(wheel_of(name, built)) as wheel:
        names = wheel.namelist()
        about = wheel.read(f"{name}-{VERSION}.dist-info/METADATA").decode()
    parts = {each.partition("/")[0] for each in names}
    assert {each for each in parts if not each.endswith((".dist-info", ".data"))} == PACKAGES[name]
    requirements = [
        Requirement(line.removeprefix("Requires-Dist: "))
        for line in about.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    needed = {
        str(each) if each.name == "oncecron" else each.name for each in requirements
    }  # the lowest version of others is their own matter
    assert needed == NEEDED[name]
    assert f"{name}-{VERSION}.dist-info/licenses/LICENSE" in names
    with zipfile.ZipFile(wheel_of("oncecron", built)) as of_host:
        theirs = {*of_host.namelist()}
    assert name == "oncecron" or not [each for each in names if each.partition("/")[2] in theirs]


@pytest.mark.parametrize(
    ("name", "tree"), [("oncecron", ROOT), ("oncecron_web", ROOT / "plugins" / "web")]
)
def test_links_and_badges_come_from_one_variable(
    name: str, tree: Path, built: Path, tmp_path: Path
) -> None:
    """What a description names is there, in the repository or on the page; without the variable nothing is added."""
    repository = "https://example.com/ann/oncecron"
    build(tree, tmp_path, "-t", "wheel", ONCECRON_BUILD_REPOSITORY=repository)
    texts = []
    for directory in (built, tmp_path):
        with zipfile.ZipFile(wheel_of(name, directory)) as wheel:
            texts.append(wheel.read(f"{name}-{VERSION}.dist-info/METADATA").decode())
    plain, text = texts
    assert "Project-URL" not in plain
    assert f"\nProject-URL: Source, {repository}\n" in text
    if name == "oncecron":
        readme = (ROOT / "README.md").read_text()
        assert plain.endswith(readme)
        _, _, description = text.partition("\n\n")
        assert description.splitlines()[2].startswith(f"[![tests]({repository}/")
        assert description.count("](") == readme.count("](") + 2
        for kind, path in re.findall(
            rf"\]\({repository}/(raw|blob)/v{VERSION}/([^)#]+)", description
        ):
            assert (ROOT / path).exists()
            assert (kind == "raw") == path.endswith((".svg", ".png"))
        assert {path[:8] for path in re.findall(r"\]\(([^)#]+)", description)} == {"https://"}


def test_a_build_that_is_no_release_names_its_commit(host: Path, tmp_path: Path) -> None:
    """By --version, and in the wheel of its source too; the commit that has the tag of its version is the release."""
    tree = tmp_path / "tree"
    kept = shutil.ignore_patterns(
        ".git", ".venv*", ".*_cache", ".hypothesis", "build", "dist", "__pycache__", "tests", "docs"
    )
    shutil.copytree(ROOT, tree, symlinks=True, ignore=kept)

    def git(*words: str) -> str:
        person = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
        return subprocess.check_output(["git", *person, *words], cwd=tree, text=True)

    def commit_in(directory: str, *words: str, **variables: str) -> str:
        build(tree, tmp_path / directory, *words, ONCECRON_BUILD_RELEASE="", **variables)
        with zipfile.ZipFile(wheel_of("oncecron", tmp_path / directory)) as wheel:
            has = "oncecron/commit" in wheel.namelist()
            return wheel.read("oncecron/commit").decode() if has else "none"

    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "A change")):
        git(*words)
    commit = git("rev-parse", "HEAD")[:12]
    assert commit_in("out") == f"{commit}\n"
    subprocess.run(["tar", "-xf", f"out/oncecron-{VERSION}.tar.gz"], cwd=tmp_path, check=True)
    build(tmp_path / f"oncecron-{VERSION}", tmp_path / "again", "-t", "wheel")
    wheels = [wheel_of("oncecron", tmp_path / name) for name in ("out", "again")]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    install(host, wheels[0])
    said = subprocess.check_output([host / "bin" / "oncecron", "--version"], text=True)
    assert said == f"oncecron {VERSION} (commit {commit})\n"

    git("tag", f"v{VERSION}")
    assert commit_in("release", "-t", "wheel") == "none"
    (tree / "README.md").write_text("# Another\n")
    assert commit_in("changed", "-t", "wheel") == f"{commit} with changes\n"
    assert commit_in("without git", "-t", "wheel", PATH="/nonexistent") == "none"


def needed_by_the_host() -> Iterator[str]:
    """Yield the distributions that a host's needs, and those that these need."""
    waiting, seen = [*NEEDED["oncecron"], "psycopg-binary"], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            if not requirement.marker or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)


@pytest.fixture
def host(tmp_path: Path, built: Path) -> Path:
    """Give the environment of a host that has its distribution, and what this needs."""
    directory = tmp_path / "host"
    venv.create(directory, symlinks=True)
    [packages] = directory.glob("lib/python*/site-packages")
    for name in needed_by_the_host():
        for file in metadata.files(name) or []:
            if file.parts[0] not in ("..", "__pycache__"):
                there = packages / file.parts[0]
                if not there.exists():
                    here = Path(str(file.locate())).parents[len(file.parts) - 1]
                    there.symlink_to(here / there.name)
    install(directory, wheel_of("oncecron", built))
    return directory


def install(environment: Path, *wheels: Path) -> None:
    """Install wheels by pip, which finds nothing else."""
    command = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install"]
    command += [
        "-q",
        "--no-deps",
        "--no-index",
        "--force-reinstall",
        "--root-user-action",
        "ignore",
        *wheels,
    ]
    subprocess.run(command, check=True)


def test_the_host_s_distribution_does_its_work_alone(
    host: Path, built: Path, tmp_path: Path
) -> None:
    """It is on click, psycopg and redis alone: all its modules, its help, and a firing; the others come beside it."""
    environment = {
        "PATH": f"{host}/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ONCECRON_CONFIG": os.devnull,
        "ONCECRON_STORE": f"sqlite://{tmp_path}/store.db",
    }

    def shell(command: str) -> str:
        return subprocess.check_output(["sh", "-ec", command], env=environment, text=True)

    shell(f'python -Wignore -c "{IMPORT_ALL.format(packages=PACKAGES["oncecron"])}"')
    assert shell("python -c 'import jinja2' 2>/dev/null || echo none") == "none\n"
    assert shell("oncecron --version") == f"oncecron {VERSION}\n"
    assert "Run a job:" in shell("oncecron --help")
    fire = "oncecron run --key k --tick 1 -- echo I run"
    assert shell(f"oncecron init >/dev/null; {fire}; {fire}") == "I run\n"
    shell("printf 'a\\nb\\n' | oncecron each --stdin --key e --tick 1 -- true")
    assert shell("oncecron items e").count("done") == 2
    assert "succeeded" in shell("oncecron history k")

    install(host, *(wheel_of(name, built) for name in ("oncecron_drill", "oncecron_web")))
    assert "oncecron web " in shell("oncecron web --help")
    assert "oncecron drill " in shell("oncecron drill --help")
    for page in ("run", "web", "drill"):
        assert (host / "share" / "man" / "man1" / f"oncecron-{page}.1").is_file()
