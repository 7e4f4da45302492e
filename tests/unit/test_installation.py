"""How an installation starts itself, and how it says that its files or its Python do not fit."""

import ast
import os
import shutil
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

import pytest

import oncecron
from oncecron.core import installation

PACKAGE = Path(oncecron.__file__).parent
SCRIPT = """\
import sys; sys.path.insert(0, {home!r})
from oncecron.core.installation import own_command
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
    [broken, *_] = home.glob("oncecron_*/__init__.py")
    broken.write_text("of another version\n")
    code = "from oncecron.core.installation import mixed; print(mixed())"
    said = subprocess.check_output([sys.executable, "-c", code], cwd=home, text=True)
    assert f"{broken.parent.name}/__init__.py is not that of oncecron-" in said


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


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    ["shutil.copytree", "compileall.compile_dir", "os.symlink", "os.replace", "shutil.rmtree"],
)
def test_a_package_whose_activation_was_killed_is_activated(
    tmp_path: Path, step: str, when: str
) -> None:
    """By the next call, at any step: dpkg would fail for ever. What was left goes, and the version before stays."""
    home = tmp_path / "oncecron"
    (home / "package" / "oncecron-1.0.dist-info").mkdir(parents=True)
    (home / "package" / "module.py").write_text("x = 1\\n")
    text = (Path(__file__).parents[2] / "packaging" / "activate.py").read_text()
    script = tmp_path / "activate.py"
    script.write_text(text.replace("/usr/lib/oncecron", str(home)))
    activate = [sys.executable, "-IS", str(script)]
    for _ in range(3):  # in one second, too
        subprocess.run(activate, check=True)
    running = (home / "current").readlink()
    killed = subprocess.run(
        [sys.executable, "-P", "-c", KILLED, script, *step.split("."), when], check=False
    )
    assert killed.returncode == 9
    assert (home / "current" / "module.py").exists()
    switched = (home / "current").readlink()
    assert (switched != running) == (
        step == "shutil.rmtree" or (step, when) == ("os.replace", "after")
    )
    subprocess.run(activate, check=True)
    assert (home / "current" / "module.py").exists()
    assert {path.name for path in home.iterdir()} == {
        *("package", "current", str((home / "current").readlink()), str(switched)),
    }
