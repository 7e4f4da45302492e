"""Build every package of this version: .deb, .rpm, .apk, Arch's, wheel and sdist, their digests and what is inside.

Run by tools/packages, which installs the locked tools. What the packages have beside Python's own library is locked in
requirements.txt, and comes from the package index. The same tree gives the same bytes: all times are that of the
commit, or $SOURCE_DATE_EPOCH.
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
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.markers import Marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
HOME = "usr/lib/oncecron"


def main() -> None:
    """Build all of it into the directory that is named, or into dist/."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    version, date = the_version(), the_date()
    os.environ |= {"SOURCE_DATE_EPOCH": str(date), "VERSION": version}
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as name:
        work, built = Path(name), Path(name) / "built"
        run(sys.executable, "-m", "hatchling", "build", "-d", built)
        stage(work, next(built.glob("*.whl")), version, date)
        for packager in PACKAGERS:
            run(
                "nfpm",
                "package",
                "-f",
                ROOT / "packaging" / "nfpm.yaml",
                "-p",
                packager,
                "-t",
                built,
                cwd=work,
            )
        contents = built / f"oncecron-{version}.spdx.json"
        contents.write_text(spdx(work / "root" / HOME / "package", version, date))
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("oncecron[-_][0-9]*"):
            old.unlink()
        for path in built.iterdir():
            shutil.copy(path, out)
    print(checksums(out), end="")


def checksums(out: Path) -> str:
    """Write the digests of all that a directory has of this program, and return them."""
    text = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.glob("oncecron[-_][0-9]*"))
    )
    (out / "SHA256SUMS").write_text(text)
    return text


def the_version() -> str:
    """Return the version, which the newest section of the changelog has too."""
    text = (ROOT / "oncecron" / "__init__.py").read_text()
    [version] = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    [newest, *_] = re.findall(r"^## \[(.*?)\]", changelog(), re.MULTILINE)
    if version != newest:
        sys.exit(
            f"oncecron/__init__.py has version {version}, the newest of CHANGELOG.md is {newest}; correct one"
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


def stage(work: Path, wheel: Path, version: str, date: int) -> None:
    """Lay the files out as packaging/nfpm.yaml names them."""
    home, share = work / "root" / HOME, work / "root" / "usr" / "share"
    bundle(work, home / "package", wheel)
    shutil.copy(ROOT / "packaging" / "activate.py", home)
    for name, python in (("python3", "/usr/bin/python3"), ("any-python", f"/{HOME}/python")):
        for program, function in (("oncecron", "main"), ("oncecron-shell", "shell")):
            text = (ROOT / "packaging" / "program").read_text()
            write(work / name / program, text.format(python=python, function=function), 0o755)
    for page in (ROOT / "man").iterdir():
        write(
            share / "man" / f"man{page.suffix[1:]}" / f"{page.name}.gz", zipped(page.read_bytes())
        )
    completions = ROOT / "oncecron" / "completions"
    for source, target in (
        ("oncecron.bash", share / "bash-completion" / "completions" / "oncecron"),
        ("oncecron.fish", share / "fish" / "vendor_completions.d" / "oncecron.fish"),
        ("_oncecron", work / "zsh" / "_oncecron"),
    ):
        write(target, (completions / source).read_bytes())
    documents = share / "doc" / "oncecron"
    write(documents / "changelog.gz", zipped(changelog().encode()))
    write(documents / "copyright", copyright_file(home / "package"))
    write(
        documents / "examples" / "oncecron.toml",
        (ROOT / "packaging" / "oncecron.toml").read_bytes(),
    )
    debian = work / "debian" / "usr" / "share"
    write(
        debian / "doc" / "oncecron" / "changelog.Debian.gz",
        zipped(debian_changelog(version, date).encode()),
    )
    source = ROOT / "packaging" / "deb"
    write(
        debian / "lintian" / "overrides" / "oncecron", (source / "lintian-overrides").read_bytes()
    )
    write(
        debian / "python3" / "runtime.d" / "oncecron.rtupdate",
        (source / "rtupdate").read_bytes(),
        0o755,
    )
    shutil.copytree(ROOT / "packaging", work / "scripts")
    for path in work.rglob("*"):
        os.utime(path, (date, date))
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def bundle(work: Path, target: Path, wheel: Path) -> None:
    """Install the wheel and the locked packages that it needs, without machine code."""
    install(work, target, locked())
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


def locked(only: str = "") -> str:
    """Return the locked requirements of the packages that bring no machine code, or of one that does."""
    return "".join(
        f"{name}=={version}{hashes}"
        for name, version, marker, hashes in LOCKED.findall((ROOT / "requirements.txt").read_text())
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
    ours = ("oncecron/", "oncecron_")
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.startswith(ours) and "/py.typed," not in line]
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


def copyright_file(target: Path) -> str:
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
        where = "*" if name == "oncecron" else f"{HOME}/package/{files}"
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


def debian_changelog(version: str, date: int) -> str:
    """Return a changelog in Debian's form; what has changed is in the other one."""
    when = datetime.fromtimestamp(date, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
    return (
        f"oncecron ({version}-1) unstable; urgency=medium\n\n  * Version {version}: see changelog.gz.\n\n"
        f" -- The oncecron founders <oncecron@localhost>  {when}\n"
    )


def spdx(target: Path, version: str, date: int, more: Iterable[tuple[str, str, str]] = ()) -> str:
    """Return the list of what is inside, with licences, as SPDX 2.3 (https://spdx.github.io/spdx-spec/).

    `more`: name, version and licence of what is no package of Python's.
    """
    created = datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    of_python = [
        (normal(description["Name"]), description["Version"], licence)
        for description, licence, _ in descriptions(target)
    ]
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
    inside = [each["SPDXID"] for each in packages if each["name"] != "oncecron"]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-oncecron")]
    relations += [("SPDXRef-oncecron", "CONTAINS", str(each)) for each in inside]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"oncecron-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/oncecron-{version}-{date}",
        "creationInfo": {"created": created, "creators": ["Tool: tools/packages"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}
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


def run(*command: object, cwd: Path = ROOT) -> None:
    """Run a command that must succeed; what it prints is shown if it does not."""
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


if __name__ == "__main__":
    main()
