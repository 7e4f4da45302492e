"""`tools/release` tags what is ready, and nothing else."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUB = '#!/bin/sh\necho "$0" "$@" >>.git/ran\n{}\n'
PACKAGES = "mkdir -p dist; cd dist; echo $ONCECRON_BUILD_RELEASE >oncecron.deb; sha256sum oncecron.deb >SHA256SUMS"
HEADING = "## [0.3.0] - 2027-01-15"
CHANGELOG = f"""\
# Changelog

{HEADING}

- It flies ([what](docs/items.md)).

## [0.2.0] - 2026-12-01

- It walks.
"""


def sh(tree: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell's command in the clone."""
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        identity |= {f"GIT_{who}_NAME": "ann", f"GIT_{who}_EMAIL": "ann@example.com"}
    return subprocess.run(
        ["sh", "-c", script], cwd=tree, env={**os.environ, **identity}, capture_output=True, text=True, check=False
    )  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Give a clone that is ready, whose tests pass and whose packages are one file."""
    files = {
        "oncecron/__init__.py": '__version__ = "0.3.0"\n',
        "CHANGELOG.md": CHANGELOG,
        "tools/release": (ROOT / "tools" / "release").read_text(),
        "tools/packages": STUB.format(PACKAGES),
        "tests/run": STUB.format("exit 0"),
        ".gitignore": "/dist/\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    assert sh(tmp_path, "git init -q && git add . && git commit -qm ready").returncode == 0
    return tmp_path


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("touch stray", "the tree has changes that are not committed"),
        ("sed -i 's/2027-01-15/not released yet/' CHANGELOG.md; git commit -qam x", "has no date for 0.3.0"),
        ("echo '__version__ = \"0.4.0\"' >oncecron/__init__.py; git commit -qam x", "is not that of 0.4.0"),
        ("git tag v0.3.0", "the version 0.3.0 exists (git tag v0.3.0)"),
        ("sed -i 's/exit 0/exit 1/' tests/run; git commit -qam x", "the tests fail; nothing was built"),
        ("sed -i 's/exit 0/touch stray/' tests/run; git commit -qam x", "the tests or the build changed the tree"),
    ],
)  # fmt: skip
def test_what_is_not_ready_is_refused(tree: Path, before: str, said: str) -> None:
    """With one line that says why; no tag is made."""
    assert sh(tree, before).returncode == 0
    tags = sh(tree, "git tag").stdout
    for form in ("tools/release", "tools/release --dry-run"):
        done = sh(tree, form)
        assert done.returncode == 1
        assert said in done.stderr.splitlines()[-1]
        assert sh(tree, "git tag").stdout == tags
        sh(tree, "git clean -qfd")
        sh(tree, before if "stray" in before else ":")


def test_what_is_ready_is_tagged(tree: Path) -> None:
    """After the tests and the packages; a dry run does the same but for the tag."""
    done = sh(tree, "tools/release --dry-run")
    assert done.stdout.splitlines() == [
        "nothing links to the repository: set ONCECRON_BUILD_REPOSITORY to its address",
        "oncecron 0.3.0 can be released: dist/ has its packages and NOTES.md; no tag was made",
    ]
    assert sh(tree, "git tag").stdout == ""
    done = sh(tree, "tools/release")
    said = "oncecron 0.3.0 is tagged as v0.3.0. Publish it: git push origin v0.3.0;"
    assert said in done.stdout
    assert sh(tree, "git tag").stdout == "v0.3.0\n"
    ran = (tree / ".git" / "ran").read_text().splitlines()
    assert ran == ["tests/run --quick", "tools/packages dist", "tests/run", "tools/packages dist"]
    sh(tree, "git tag -d v0.3.0")
    done = sh(tree, "tools/release --with-python --dry-run")
    assert done.returncode == 0, done.stderr
    assert (tree / ".git" / "ran").read_text().endswith("\ntools/packages --with-python dist\n")
    assert "unknown argument '--nonsense'" in sh(tree, "tools/release --nonsense").stderr
    notes = (tree / "dist" / "NOTES.md").read_text()
    assert notes.startswith("# oncecron 0.3.0\n\n\n- It flies")
    assert "It walks" not in notes
    assert (tree / "dist" / "oncecron.deb").read_text() == "yes\n"  # no commit in --version
    assert "  oncecron.deb\n" in notes
    assert "`sha256sum -c --ignore-missing SHA256SUMS`" in notes
    assert "[what](docs/items.md)" in notes
    again = sh(tree, "ONCECRON_BUILD_REPOSITORY=https://example.com/ann/o tools/release --dry-run")
    assert again.stdout.startswith("oncecron 0.3.0 can be released")
    linked = (tree / "dist" / "NOTES.md").read_text()
    assert linked == notes.replace("](docs/", "](https://example.com/ann/o/blob/v0.3.0/docs/")


def test_a_release_is_signed_where_a_key_is_given(
    tree: Path, public_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of the notes verifies what one got: neither other files nor other checksums pass."""
    monkeypatch.setenv("GNUPGHOME", str(public_path))
    public_path.chmod(0o700)
    quiet = "gpg -q --batch --pinentry-mode loopback --passphrase ''"
    try:
        unknown = sh(tree, "tools/release --sign ann@example.com")
        assert "gpg has no secret key ann@example.com" in unknown.stderr
        assert (
            sh(tree, f"{quiet} --quick-generate-key ann@example.com ed25519 sign").returncode == 0
        )
        done = sh(tree, "tools/release --sign ann@example.com")
        assert done.returncode == 0, done.stderr
        assert sh(tree, "git tag -v v0.3.0").returncode == 0
        [line] = re.findall("Verify what you got: `(.*)`", (tree / "dist" / "NOTES.md").read_text())
        verify = f"cd dist && {line}"
        assert line in " ".join((ROOT / "docs" / "install.md").read_text().split())
        assert sh(tree, verify).stdout == "oncecron.deb: OK\n"
        sh(tree, "echo more >>dist/oncecron.deb")
        assert sh(tree, verify).returncode == 1
        sh(tree, "cd dist && sha256sum oncecron.deb >SHA256SUMS")
        done = sh(tree, verify)
        assert "BAD signature" in done.stderr
        assert (done.returncode, done.stdout) == (1, "")
        sh(tree, "git tag -d v0.3.0; tools/release")
        assert not (tree / "dist" / "SHA256SUMS.asc").exists()
    finally:
        sh(tree, "gpgconf --kill all")
