"""The crontabs of Debian's packages, as lint, crontab(1) and wrap judge them."""

from pathlib import Path

import pytest
from crontabs import accepted_by_cron
from crontabs.debian_packages import files_in_cron_d

from oncecron_crontab.lint import LintedCrontab, lint
from oncecron_crontab.prefix import read_prefix
from oncecron_crontab.scanner import Entry, scan
from oncecron_crontab.wrap import WrapSettings, unwrap, wrap

EVERYTHING = WrapSettings("/usr/local/bin/oncecron", "UTC", ("*",))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Give the files of all packages in /etc/cron.d."""
    return files_in_cron_d(tmp_path_factory.mktemp("packages"))


def without_users(data: bytes) -> bytes:
    """Return a system crontab as a user's, for crontab(1)."""
    lines = [
        line.raw.replace(line.user or b"", b"", 1) if isinstance(line, Entry) else line.raw
        for line in scan(data, system=True).lines
    ]
    return b"".join(lines)


@pytest.mark.timeout(1200)
def test_nothing_is_found_in_them(files: list[Path]) -> None:
    """No finding of lint: Debian's maintainers wrote what they meant."""
    for file in files:
        crontab = scan(file.read_bytes(), system=True)
        assert list(crontab.entries()) or b"#" in file.read_bytes(), file
        assert lint([LintedCrontab(str(file), crontab)]) == [], file


@pytest.mark.timeout(1200)
def test_they_are_judged_as_cron_judges_them(files: list[Path], tmp_path: Path) -> None:
    """Before and after wrapping, by Debian's `crontab -n`."""
    for file in files:
        data = file.read_bytes()
        done = wrap(scan(data, system=True), EVERYTHING)
        for text in (data, done.data):
            bare = without_users(text)
            assert accepted_by_cron(bare, tmp_path) == (not scan(bare).problems()), file
        assert done.errors == [], file


@pytest.mark.timeout(1200)
def test_every_line_is_wrapped_or_named_and_restored(files: list[Path]) -> None:
    """A second time nothing changes, and unwrap gives the same bytes."""
    for file in files:
        data = file.read_bytes()
        done = wrap(scan(data, system=True), EVERYTHING)
        again = scan(done.data, system=True)
        wrapped = {each.number for each in again.entries() if read_prefix(each.command)}
        named = {problem.number for problem in done.unchanged}
        assert wrapped.isdisjoint(named), file
        assert wrapped | named == {each.number for each in again.entries()}, file
        assert wrap(again, EVERYTHING).data == done.data, file
        assert unwrap(again).data == data, file
