"""Build every package of this version: .deb, .rpm, .apk, Arch's, wheels and sources, their digests and what is inside.

Run by tools/packages, which installs the locked tools. What the packages have beside Python's own library is locked in
the requirements.txt of each distribution, and comes from the package index. The same tree gives the same bytes: all
times are that of the commit, or $SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import contents
from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[1]
PACKAGERS = ("deb", "rpm", "apk", "archlinux")
KINDS = {
    "Debian, Ubuntu": ".deb",
    "Fedora, RHEL": ".rpm",
    "Alpine": ".apk",
    "Arch": ".pkg.tar.zst",
    "Python, as wheel": ".whl",
    "its source": ".tar.gz",
    "what is inside": ".spdx.json",
}
"""What is made, by the end of its name."""
BLOCK = 4096
"""Of most file systems, in bytes: each file takes whole ones."""
OLDEST = {
    "implementation_name": "cpython",
    "platform_machine": "",  # any: nothing in the packages is machine code
    "python_full_version": "3.11.0",
    "python_version": "3.11",
    "sys_platform": "linux",
}
"""The Python that needs most: a newer one does not import what it has itself."""
NOT_PACKAGED = ("psycopg-binary",)
"""psycopg takes the system's libpq instead."""
LOCKED = re.compile(
    r"^([\w.-]+)==(\S+)(?: ; (.*?))?( \\\n(?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE
)
OURS = re.compile(r"oncecron([-_](web|drill))?[-_]\d")
HOME = "usr/lib/oncecron"
PROGRAMS = {"oncecron": "oncecron.__main__", "oncecron-shell": "oncecron_crontab.__main__"}
"""Whose `main` each is."""
PLUGINS = {
    "oncecron-web": "pages for a browser and metrics for Prometheus of oncecron",
    "oncecron-drill": "put a store of oncecron to the proof",
}
"""The distributions beside that of a host, each with what it is for."""
ABOUT = """\
{summary}
  oncecron runs a crontab entry once cluster-wide. This package has its
  {commands}."""
"""What the package of such a distribution says of itself."""


def main() -> None:
    """Build all of it into the directory that is named, or into dist/."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    version, date = the_version(), the_date()
    os.environ |= {"SOURCE_DATE_EPOCH": str(date), "VERSION": version}
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as name:
        built = Path(name) / "built"
        inside = {}
        for package in ("oncecron", *PLUGINS):
            work = Path(name) / package
            work.mkdir()
            run(sys.executable, "-m", "hatchling", "build", "-d", built, cwd=source_of(package))
            inside[package] = stage(work, package, wheel_of(package, built), version, date)
            for packager in PACKAGERS:
                command = ["nfpm", "package", "-f", "nfpm.yaml", "-p", packager, "-t", built]
                run(*command, cwd=work)
            say_installed_size(built / f"{package}_{version}-1_all.deb", installed_size(work))
        inventory = built / f"oncecron-{version}.spdx.json"
        inventory.write_text(contents.spdx(inside, version, date))
        out.mkdir(parents=True, exist_ok=True)
        for old in ours(out):
            old.unlink()
        for path in built.iterdir():
            shutil.copy(path, out)
    checksums(out)
    print(summary(out, version))


def summary(out: Path, version: str) -> str:
    """Return what was made, by the package of a host, and what to do with it."""
    lines = [f"{out} has {len(ours(out))} files of oncecron {version}, and SHA256SUMS:"]
    for what, suffix in KINDS.items():
        names = [path.name for path in ours(out) if path.name.endswith(suffix)]
        lines.append(f"  {what:20} {' '.join(names)}")
    deb = out / f"oncecron_{version}-1_all.deb"
    lines.append(
        f"On this host, as root: `apt-get install {deb}`, then `oncecron doctor`. On others: docs/install.md"
    )
    return "\n".join(lines)


def checksums(out: Path) -> None:
    """Write the digests of all that a directory has of this program."""
    text = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in ours(out)
    )
    (out / "SHA256SUMS").write_text(text)


def ours(out: Path) -> list[Path]:
    """Return the files of this program in a directory."""
    return sorted(path for path in out.iterdir() if OURS.match(path.name))


def source_of(package: str) -> Path:
    """Return the directory that has the `pyproject.toml` of a distribution."""
    return ROOT / "plugins" / package.partition("-")[2] if package in PLUGINS else ROOT


def wheel_of(package: str, directory: Path) -> Path:
    """Return the wheel of a distribution."""
    [wheel] = directory.glob(f"{package.replace('-', '_')}-*.whl")
    return wheel


def the_version() -> str:
    """Return the version, which the newest section of the changelog has too."""
    text = (ROOT / "oncecron" / "__init__.py").read_text()
    [version] = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    [newest, *_] = re.findall(r"^## \[(.*?)\]", changelog(), re.MULTILINE)
    if version != newest:
        sys.exit(
            f"oncecron/__init__.py has version {version}, the newest of CHANGELOG.md is {newest}; correct one"
        )
    for package in PLUGINS:
        if f'"oncecron=={version}"' not in (source_of(package) / "pyproject.toml").read_text():
            sys.exit(
                f"{source_of(package)}/pyproject.toml does not require oncecron=={version}; correct it"
            )
    return str(version)


def changelog() -> str:
    """Return the text of the changelog."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def the_date() -> int:
    """Return the time of what is built, in epoch seconds."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit("this is no clone, so the time of its commit is unknown; set SOURCE_DATE_EPOCH")
    return int(done.stdout)


def stage(work: Path, package: str, wheel: Path, version: str, date: int) -> Path:
    """Lay the files of a package out as its nfpm.yaml names them; return the directory with what it imports."""
    share = work / "root" / "usr" / "share"
    modules = work / "root" / "usr" / "lib" / package / "package"
    bundle(work, modules, package, wheel)
    for page in wheel_pages(wheel):
        write(
            share / "man" / f"man{page.suffix[1:]}" / f"{page.name}.gz", zipped(page.read_bytes())
        )
    documents = share / "doc" / package
    write(documents / "copyright", contents.copyright_file(modules, package))
    debian = work / "debian" / "usr" / "share"
    write(
        debian / "doc" / package / "changelog.Debian.gz",
        zipped(debian_changelog(package, version, date).encode()),
    )
    kind = "plugin" if package in PLUGINS else "deb"
    overrides = (ROOT / "packaging" / kind / "lintian-overrides").read_text()
    write(debian / "lintian" / "overrides" / package, overrides.replace("NAME", package))
    if package in PLUGINS:
        write(work / "nfpm.yaml", plugin_config(package, [*wheel_pages(wheel)]))
    else:
        write(work / "nfpm.yaml", (ROOT / "packaging" / "nfpm.yaml").read_text())
        stage_programs(work, documents, debian)
    shutil.copytree(ROOT / "packaging", work / "scripts")
    for path in work.rglob("*"):
        os.utime(path, (date, date))
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    return modules


def wheel_pages(wheel: Path) -> list[Path]:
    """Return the manual pages of a wheel, which are those of its commands."""
    with zipfile.ZipFile(wheel) as archive:
        return [ROOT / "man" / Path(name).name for name in archive.namelist() if "/man/" in name]


def plugin_config(package: str, pages: list[Path]) -> str:
    """Return how nfpm makes the package of a plugin."""
    names = [f"`{page.stem.replace('-', ' ')}`" for page in pages]
    commands = ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
    text = (ROOT / "packaging" / "plugin" / "nfpm.yaml").read_text()
    about = ABOUT.format(summary=PLUGINS[package], commands=f"commands {commands}")
    about = about.replace("commands", "command") if len(names) == 1 else about
    for word, value in (("NAME", package), ("ABOUT", about), ("SUMMARY", PLUGINS[package])):
        text = text.replace(f" {word}\n", f" {value}\n")
    return text


def stage_programs(work: Path, documents: Path, debian: Path) -> None:
    """Lay out what the package oncecron alone has: the programs, and what shells and the system find."""
    home, share = work / "root" / HOME, work / "root" / "usr" / "share"
    for file in ("activate.py", "leave"):
        shutil.copy(ROOT / "packaging" / file, home)
    for name, python in (("python3", "/usr/bin/python3"), ("any-python", f"/{HOME}/python")):
        for program, module in PROGRAMS.items():
            text = (ROOT / "packaging" / "program").read_text()
            write(work / name / program, text.format(python=python, module=module), 0o755)
    for shell, target in (
        ("bash", share / "bash-completion" / "completions" / "oncecron"),
        ("fish", share / "fish" / "vendor_completions.d" / "oncecron.fish"),
        ("zsh", work / "zsh" / "_oncecron"),
    ):
        write(target, completion(home / "package", shell))
    write(documents / "changelog.gz", zipped(changelog().encode()))
    write(
        documents / "examples" / "oncecron.toml",
        (ROOT / "packaging" / "oncecron.toml").read_bytes(),
    )
    write(
        debian / "python3" / "runtime.d" / "oncecron.rtupdate",
        (ROOT / "packaging" / "deb" / "rtupdate").read_bytes(),
        0o755,
    )


def bundle(work: Path, target: Path, package: str, wheel: Path) -> None:
    """Install a wheel and the locked packages that it needs, without machine code."""
    if needed := locked(package):
        install(work, target, needed)
    pip(target, wheel)
    for name in ("bin", "share"):
        shutil.rmtree(target / name, ignore_errors=True)
    for path in [
        *target.rglob("*.so"),
        *target.rglob("*.c"),
        *target.rglob("*.pyi"),
        *target.rglob("py.typed"),
    ]:
        path.unlink()
    for path in target.rglob("*.py"):  # a module is no program
        path.chmod(0o644)
        text = path.read_bytes()
        if text.startswith(b"#!"):
            path.write_bytes(b"#" + text[2:])
    for path in target.glob("*.dist-info/*"):
        if path.name in (
            "direct_url.json",
            "INSTALLER",
            "REQUESTED",
            "WHEEL",
            "entry_points.txt",
            "top_level.txt",
        ):
            path.unlink()
        elif path.name == "RECORD":
            keep_record(path)


def locked(package: str, only: str = "") -> str:
    """Return the locked requirements of a distribution that bring no machine code, or the one that does."""
    text = (source_of(package) / "requirements.txt").read_text()
    return "".join(
        f"{name}=={version}{hashes}"
        for name, version, marker, hashes in LOCKED.findall(text)
        if (name == only if only else name not in NOT_PACKAGED)
        and (only or not marker or Marker(marker).evaluate(OLDEST))
    )


def install(work: Path, target: Path, requirements: str, python: str = "3.11") -> None:
    """Install locked requirements; the same files whichever Python builds."""
    path = work / "requirements.txt"
    path.write_text(requirements)
    same = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    # Of the one package of all that has machine code besides, its modules do without.
    same += ["--platform", f"manylinux2014_{platform.machine()}"]
    pip(target, *same, "--require-hashes", "-r", path)


def pip(target: Path, *words: object) -> None:
    """Install into a directory, by pip."""
    options = [
        "--disable-pip-version-check",
        "--no-input",
        "-q",
        "install",
        "--no-deps",
        "--no-compile",
    ]
    options += ["--ignore-installed", "--root-user-action", "ignore", "--target"]
    run(sys.executable, "-m", "pip", *options, target, *words)


def keep_record(path: Path) -> None:
    """Keep the digests of our own files alone, by which `oncecron doctor` knows an upgrade that did not end."""
    lines = path.read_text().splitlines(keepends=True)
    kept = [
        line for line in lines if re.match(r"oncecron(_\w+)?/", line) and "/py.typed," not in line
    ]
    if kept:
        path.write_text("".join(sorted(kept)))
    else:
        path.unlink()


def installed_size(work: Path) -> int:
    """Return what a .deb takes on disk, in KiB: its files, and what is compiled of its modules at the installation.

    The compiled modules have together some 4/3 of the bytes of their sources: 1.42 with Python 3.11, 1.29 with 3.13.
    """
    sizes = []
    for part in ("root", "python3", "zsh", "debian"):
        for path in (work / part).rglob("*"):
            if path.is_file():
                size = path.stat().st_size
                sizes += [size, size * 4 // 3] if path.suffix == ".py" else [size]
    return sum(-(-size // BLOCK) for size in sizes) * BLOCK // 1024


def say_installed_size(deb: Path, size: int) -> None:
    """Write the installed size into a .deb: nfpm counts what it has packed alone, and has no option for it."""
    data = deb.read_bytes()
    start = data.index(
        b"control.tar.gz"
    )  # the second member of an ar(5) archive, whose heads have 60 bytes
    head, body = data[start : start + 60], start + 60
    length = int(head[48:58])
    made = BytesIO()
    with (
        tarfile.open(fileobj=BytesIO(data[body : body + length])) as old,
        tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in old:
            file = old.extractfile(member)
            text = file.read() if file else b""
            if member.name == "./control":
                text = re.sub(rb"(?m)^Installed-Size: .*$", b"Installed-Size: %d" % size, text)
                member.size = len(text)
            new.addfile(member, BytesIO(text))
    control = zipped(made.getvalue())
    head = head[:48] + b"%-10d" % len(control) + head[58:]
    rest = data[body + length + length % 2 :]
    deb.write_bytes(data[:start] + head + control + b"\n" * (len(control) % 2) + rest)


def debian_changelog(package: str, version: str, date: int) -> str:
    """Return a changelog in Debian's form; what has changed is in the other one, of oncecron."""
    when = datetime.fromtimestamp(date, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
    return (
        f"{package} ({version}-1) unstable; urgency=medium\n\n  * Version {version}: see changelog.gz.\n\n"
        f" -- The oncecron founders <oncecron@localhost>  {when}\n"
    )


def zipped(data: bytes) -> bytes:
    """Return data as `gzip -9n` has it: without name and time."""
    return gzip.compress(data, 9, mtime=0)


def write(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


def completion(modules: Path, shell: str) -> str:
    """Return the completion script of a shell, as the program in a directory prints it."""
    code = f"import sys; sys.path.insert(0, {str(modules)!r}); from oncecron.__main__ import main; main()"
    return run(sys.executable, "-ISBc", code, "completion", shell)


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command that must succeed; return what it prints, which is shown if it does not."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"{done.stdout}{done.stderr}\n{' '.join(map(str, command))}: exit status {done.returncode}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
