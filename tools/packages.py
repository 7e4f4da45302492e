"""Build every package of this version: .deb, .rpm, .apk, Arch's, wheels and sources, their digests and what is inside.

Run by tools/packages, which installs the locked tools. What the packages have beside Python's own library is locked in
the requirements.txt of each distribution, and comes from the package index. The same tree gives the same bytes: all
times are that of the commit, or $SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.markers import Marker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from email.message import Message

ROOT = Path(__file__).resolve().parents[1]
PACKAGERS = ("deb", "rpm", "apk", "archlinux")
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
LICENCES = {"async-timeout": "Apache-2.0", "jinja2": "BSD-3-Clause", "waitress": "ZPL-2.1"}
"""Of packages whose own description has no SPDX expression."""
COMMON_LICENCES = {"Apache-2.0": "Apache-2.0", "LGPL-3.0-only": "LGPL-3"}
"""Those whose text every Debian has, by its name in /usr/share/common-licenses."""
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
        contents = built / f"oncecron-{version}.spdx.json"
        contents.write_text(spdx(inside, version, date))
        out.mkdir(parents=True, exist_ok=True)
        for old in ours(out):
            old.unlink()
        for path in built.iterdir():
            shutil.copy(path, out)
    print(checksums(out), end="")


def checksums(out: Path) -> str:
    """Write the digests of all that a directory has of this program, and return them."""
    text = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in ours(out)
    )
    (out / "SHA256SUMS").write_text(text)
    return text


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
    write(documents / "copyright", copyright_file(modules, package))
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


def descriptions(target: Path) -> Iterator[tuple[Message, str, Path]]:
    """Yield what each package says of itself, its licence, and the directory that has its texts."""
    for path in sorted(target.glob("*.dist-info")):
        text = (path / "METADATA").read_text(encoding="utf-8")
        description = HeaderParser().parsestr(text)
        licence = description["License-Expression"] or LICENCES[normal(description["Name"])]
        yield description, licence, path


def normal(name: str) -> str:
    """Return the name of a package in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def copyright_file(target: Path, package: str = "oncecron") -> str:
    """Return who holds the rights, in Debian's form (DEP-5)."""
    parts = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: oncecron\n"
    ]
    texts: dict[str, str] = {}
    for description, licence, path in descriptions(target):
        name, files = description["Name"], f"{path.name.partition('-')[0]}*"
        authors = (
            description["Author"] or description["Author-email"] or description["Maintainer-email"]
        )
        texts[licence] = texts.get(licence) or licence_text(licence, path)
        where = "*" if name == package else f"usr/lib/{package}/package/{files}"
        parts.append(
            f"Files: {where}\nCopyright: {authors}\nLicense: {licence.replace(' AND ', ' and ')}\n"
        )
    parts.sort(key=lambda part: not part.startswith(("Format", "Files: *\n")))
    for licence, text in sorted(texts.items()):
        lines = "".join(f" {line.rstrip() or '.'}\n" for line in text.strip().splitlines())
        parts.append(f"License: {licence.replace(' AND ', ' and ')}\n{lines}")
    return "\n".join(parts)


def licence_text(licence: str, path: Path) -> str:
    """Return the texts of a licence, or where every Debian has it."""
    files = [file for file in path.rglob("*") if re.match(r"LICEN|NOTICE|COPYING", file.name)]
    common = [name for each, name in COMMON_LICENCES.items() if each in licence]
    if common:
        files = [file for file in files if file.name == "NOTICE"]
    said = [
        f"On Debian systems, the text is in /usr/share/common-licenses/{name}." for name in common
    ]
    return "\n".join([*said, *(file.read_text(encoding="utf-8") for file in sorted(files))])


def debian_changelog(package: str, version: str, date: int) -> str:
    """Return a changelog in Debian's form; what has changed is in the other one, of oncecron."""
    when = datetime.fromtimestamp(date, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
    return (
        f"{package} ({version}-1) unstable; urgency=medium\n\n  * Version {version}: see changelog.gz.\n\n"
        f" -- The oncecron founders <oncecron@localhost>  {when}\n"
    )


def spdx(
    inside: Mapping[str, Path], version: str, date: int, more: Sequence[tuple[str, str, str]] = ()
) -> str:
    """Return the list of what is inside packages, with licences, as SPDX 2.3 (https://spdx.github.io/spdx-spec/).

    `inside`: where each has its modules. `more`: name, version and licence of what is no package of Python's.
    """
    created = datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = {
        package: [
            (normal(description["Name"]), description["Version"], licence)
            for description, licence, _ in descriptions(target)
        ]
        for package, target in inside.items()
    }
    of_python = sorted({each for of_one in found.values() for each in of_one})
    packages: list[dict[str, object]] = [
        {
            "SPDXID": f"SPDXRef-{name}",
            "name": name,
            "versionInfo": of,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": licence,
            "licenseDeclared": licence,
            "copyrightText": "NOASSERTION",
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                "referenceLocator": f"pkg:{kind}/{name}@{of}",
            }],
        }
        for kind, listed in (("pypi", of_python), ("generic", more))
        for name, of, licence in listed
    ]  # fmt: skip
    relations = [("DOCUMENT", "DESCRIBES", package) for package in inside]
    relations += [
        (package, "CONTAINS", name)
        for package, of_one in found.items()
        for name, *_ in [*of_one, *more]
        if name != package
    ]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"oncecron-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/oncecron-{version}-{date}",
        "creationInfo": {"created": created, "creators": ["Tool: tools/packages"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": f"SPDXRef-{one}", "relationshipType": how, "relatedSpdxElement": f"SPDXRef-{other}"}
            for one, how, other in relations
        ],
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


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
