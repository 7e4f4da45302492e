"""How an installation starts itself, and how it says that its files or its Python do not fit."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path

import pytest

import oncecron
from oncecron.host import installation

PACKAGE = Path(oncecron.__file__).parent
SCRIPT = """\
import sys; sys.path.insert(0, {home!r})
from oncecron.host.installation import own_command
print(own_command())
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Give a directory with the packages and the list of their files, as every installer leaves them."""
    files = metadata.distribution("oncecron").files or []
    for init in PACKAGE.parent.glob("oncecron*/__init__.py"):
        shutil.copytree(init.parent, tmp_path / init.parent.name)
    [record] = [Path(str(file.locate())) for file in files if file.name == "RECORD"]
    shutil.copytree(record.parent, tmp_path / record.parent.name)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["-IS"], ["-P", "-m"]])
def test_a_program_starts_itself_as_it_was_started(home: Path, options: list[str]) -> None:
    """From a private folder, which `-m` would not find, as from any other; what was typed behind it is not repeated."""
    (home / "starter.py").write_text(SCRIPT.format(home=str(home)))
    what = "starter" if "-m" in options else str(home / "starter.py")
    started = [sys.executable, *options, what]
    environment = {"PYTHONPATH": str(home), "PATH": os.environ["PATH"]}
    out = subprocess.check_output([*started, "notify", "--now"], env=environment, text=True)
    assert ast.literal_eval(out) == started


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("true", ""),
        ("echo 'raise TypeError' >>oncecron/cli/next.py", "oncecron/cli/next.py is not that of oncecron-"),
        ("rm oncecron/cli/next.py", "oncecron/cli/next.py is not that of oncecron-"),
        (
            "cp -r oncecron-*.dist-info oncecron-0.0.1.dist-info; rm oncecron/cli/next.py",
            "files of two versions: oncecron-0.0.1.dist-info and oncecron-",
        ),
        ("rm -r oncecron-*.dist-info; echo 'raise TypeError' >>oncecron/cli/next.py", "internal error: TypeError"),
    ],
)  # fmt: skip
def test_an_upgrade_that_did_not_end_is_one_line(home: Path, harm: str, said: str) -> None:
    """Whatever fails by it, it is no internal error. Nothing is known of it without the installer's list."""
    subprocess.run(["sh", "-c", harm], cwd=home, check=True)
    command = [sys.executable, "-m", "oncecron", "next", "@daily", "--tz", "UTC"]
    environment = {"PYTHONPATH": str(home), "PATH": os.environ["PATH"], "HOME": str(home)}
    ended = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stderr.count("\n") == (1 if said else 0), ended.stderr
    assert said in ended.stderr


def test_plugins_are_of_the_same_version(home: Path) -> None:
    """An upgrade may end within one of them."""
    others = ("oncecron_drill", "oncecron_web")  # distributions of their own
    plugins = home.glob("oncecron_*/__init__.py")
    broken = next(each for each in plugins if each.parent.name not in others)
    broken.write_text("of another version\n")
    code = "from oncecron.host.installation import mixed; print(mixed())"
    said = subprocess.check_output([sys.executable, "-c", code], cwd=home, text=True)
    assert f"{broken.parent.name}/__init__.py is not that of oncecron-" in said


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (
            "echo >>oncecron_web/__init__.py",
            "oncecron_web/__init__.py is not that of oncecron_web-",
        ),
        (
            "mv oncecron_web-*.dist-info oncecron_web-0.0.1.dist-info",
            f"oncecron-{oncecron.__version__}.dist-info and oncecron_web-0.0.1.dist-info",
        ),
        ("mv oncecron_web-*.dist-info oncecron_other-0.0.1.dist-info", "None"),
    ],
)
def test_distributions_are_of_the_same_version(home: Path, harm: str, said: str) -> None:
    """One may have been upgraded alone; what others bring has versions of its own."""
    pytest.importorskip("oncecron_web")
    [record] = PACKAGE.parent.glob("oncecron_web-*.dist-info")
    shutil.copytree(record, home / record.name)
    subprocess.run(["sh", "-c", harm], cwd=home, check=True)
    code = "from oncecron.host.installation import mixed; print(mixed())"
    assert said in subprocess.check_output([sys.executable, "-c", code], cwd=home, text=True)


def test_a_python_that_is_too_old_is_one_line() -> None:
    """It can read the file that says so, and no other."""
    ast.parse((PACKAGE / "__init__.py").read_text(), feature_version=(3, 4))
    code = "import sys; sys.version_info = (3, 9, 2); sys.version = '3.9.2 (main)'; import oncecron"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 78
    assert ended.stderr == (
        f"oncecron: Python 3.11 or newer is needed, but {sys.executable} is Python 3.9.2; "
        "install oncecron with a newer one\n"
    )


@pytest.mark.parametrize(
    ("mark", "line"),
    [
        ("/var/lib/dpkg/info/oncecron.list", "apt-get install ./oncecron-web_{}-1_all.deb"),
        ("/usr/lib/oncecron/python", "dnf install ./oncecron-web-{}-1.noarch.rpm"),
        ("/lib/apk/db/installed", "apk add --allow-untrusted ./oncecron-web_{}-r1_noarch.apk"),
        ("/var/lib/pacman/local", "pacman -U oncecron-web-{}-1-any.pkg.tar.zst"),
    ],
)
def test_what_a_package_lacks_is_installed_by_its_package_manager(
    monkeypatch: pytest.MonkeyPatch, mark: str, line: str
) -> None:
    """Of the same version. Whoever has unpacked it by hand is told the name of the package."""
    monkeypatch.setattr(installation, "HOME", "/usr/lib/oncecron/0.1.0.1790000000")
    monkeypatch.setattr(os.path, "exists", mark.__eq__)
    line = line.format(oncecron.__version__)
    assert installation.how_to_install("oncecron-web") == f"install it: `{line}`"
    monkeypatch.setattr(os.path, "exists", "".__eq__)
    assert installation.how_to_install("oncecron-web") == "install the package oncecron-web"
    assert installation.how_to_install("oncecron") == "install the package oncecron again"


def test_a_tarball_that_lacks_something_is_unpacked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has all."""
    monkeypatch.setattr(installation, "HOME", "/opt/on ce/lib/modules")
    monkeypatch.setattr(sys, "prefix", "/opt/on ce/lib/python")
    assert installation.how_to_install("oncecron-web") == "unpack the tarball again in /opt/on ce"


@pytest.mark.parametrize(
    ("prefix", "mark", "pip", "line"),
    [
        ("/opt/oncecron", "", "pip", "/opt/oncecron/bin/python -m pip install {}"),
        ("/opt/a b", "", "pip", "'/opt/a b/bin/python' -m pip install {}"),
        ("/opt/uv/oncecron", "", None, "uv pip install --python /opt/uv/oncecron/bin/python {}"),
        ("/opt/pipx/venvs/oncecron", "pipx_metadata.json", "pip", "PIPX_HOME=/opt/pipx pipx inject oncecron {}"),
        ("/home/ann/.local/pipx/venvs/cron", "pipx_metadata.json", "pip", "pipx inject cron {}"),
    ],
)  # fmt: skip
def test_what_an_environment_lacks_is_installed_as_it_was(
    monkeypatch: pytest.MonkeyPatch, prefix: str, mark: str, pip: str | None, line: str
) -> None:
    """By its own pip, by pipx, or by uv, which leaves it without pip."""
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setattr(installation, "HOME", f"{prefix}/lib/python3.11/site-packages")
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(sys, "executable", f"{prefix}/bin/python")
    monkeypatch.setattr(os.path, "exists", f"{prefix}/{mark}".__eq__)
    monkeypatch.setattr(util, "find_spec", lambda _name: pip)
    line = line.format(f"oncecron-drill=={oncecron.__version__}")
    assert installation.how_to_install("oncecron-drill") == f"install it: `{line}`"


# The files of a package

KILLED = """
import os, shutil, compileall, sys
source, module, name, when = sys.argv[1:]
owner = sys.modules[module]
real = getattr(owner, name)
def killed(*given, **named):
    if when == "after":
        real(*given, **named)
    os._exit(9)
setattr(owner, name, killed)
exec(compile(open(source).read(), source, "exec"), {"__name__": "activate"})
"""


Activate = Callable[..., int]


def lay(directory: Path, name: str, version: str, module: str) -> None:
    """Lay a package of a version, as a package manager does."""
    shutil.rmtree(directory / "package", ignore_errors=True)
    (directory / "package" / f"{name}-{version}.dist-info").mkdir(parents=True)
    (directory / "package" / f"{name}-{version}.dist-info" / "METADATA").write_text(version)
    (directory / "package" / module).write_text(f"version = {version!r}\n")


@pytest.fixture
def package_home(tmp_path: Path) -> Path:
    return tmp_path / "oncecron"


@pytest.fixture
def activate(package_home: Path) -> Activate:
    """Give a function that brings the packages there into use; `killed` at a step, which may be carried out."""
    text = (Path(__file__).parents[2] / "packaging" / "activate.py").read_text()
    script = package_home.parent / "activate.py"
    script.write_text(text.replace("/usr/lib/oncecron", str(package_home)))

    def activated(*killed: str) -> int:
        how = ["-P", "-c", KILLED, script, *killed] if killed else ["-IS", script]
        return subprocess.run([sys.executable, *how], check=False).returncode

    return activated


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step", ["os.link", "compileall.compile_dir", "os.symlink", "os.replace", "shutil.rmtree"]
)
def test_a_package_whose_activation_was_killed_is_activated(
    package_home: Path, activate: Activate, step: str, when: str
) -> None:
    """By the next call, at any step: dpkg would fail for ever. What was left goes, and the version before stays."""
    current = package_home / "current"
    for version in ("1.0", "2.0"):
        lay(package_home, "oncecron", version, "module.py")
        assert activate() == 0
    running = current.readlink()
    lay(package_home, "oncecron", "3.0", "module.py")
    assert activate(*step.split("."), when) == 9
    assert (current / "module.py").exists()
    switched = step == "shutil.rmtree" or (step, when) == ("os.replace", "after")
    assert (current.readlink() != running) == switched
    assert activate() == 0
    assert (current / "module.py").read_text() == "version = '3.0'\n"
    assert {path.name for path in package_home.iterdir()} == {
        *("package", "current", str(current.readlink()), str(running)),
    }
    assert [*(current / "__pycache__").iterdir()]


def test_an_activation_without_a_change_changes_nothing(
    package_home: Path, activate: Activate
) -> None:
    """So several packages, installed one after the other, leave the files of the version before to its jobs."""
    web = package_home.parent / "oncecron-web"
    for version in ("1.0", "2.0"):
        lay(package_home, "oncecron", version, "module.py")
        activate()
        lay(web, "oncecron_web", version, "web.py")
        activate()
        used = (package_home / "current").readlink()
        activate()
        assert (package_home / "current").readlink() == used
    kept = [path.name for path in package_home.iterdir() if path.name.startswith("1.0.")]
    assert len(kept) == 2


def test_a_package_is_used_in_the_version_of_oncecron_alone(
    package_home: Path, activate: Activate
) -> None:
    """In whichever order they are upgraded; and no longer when it has been removed."""
    current, web = package_home / "current", package_home.parent / "oncecron-web"

    def used() -> tuple[str, bool]:
        assert activate() == 0
        text = (current / "module.py").read_text()
        names = {path.name for path in current.glob("oncecron*.dist-info")}
        there = (current / "web.py").exists()
        assert len(names) == 1 + there
        return text.split("'")[1], there

    lay(package_home, "oncecron", "1.0", "module.py")
    lay(web, "oncecron_web", "1.0", "web.py")
    assert used() == ("1.0", True)
    lay(web, "oncecron_web", "2.0", "web.py")
    assert used() == ("1.0", False)
    lay(package_home, "oncecron", "2.0", "module.py")
    assert used() == ("2.0", True)
    lay(package_home, "oncecron", "3.0", "module.py")
    assert used() == ("3.0", False)
    lay(web, "oncecron_web", "3.0", "web.py")
    assert used() == ("3.0", True)
    shutil.rmtree(web)
    assert used() == ("3.0", False)
