"""The packages: built by one command, installed by the system's tool, upgraded while a job runs, removed, purged.

In a copy of this machine's root file system; with ONCECRON_TEST_ROOTS=all also in bare Debian 12 and 13.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import debian
import pytest
from log_of import PostgresLog
from servers import Database, eventually
from servers.process import public_directory
from servers.require import not_proven, program
from servers.roots import MACHINE, RELEASES, ROOTS, Root

import oncecron

ROOT = Path(__file__).parents[2]
ALL = os.environ.get("ONCECRON_TEST_ROOTS") == "all"
OLD = "0.0.9"
NEW = oncecron.__version__
LATER = "0.1.1"
PACKAGES = ("oncecron", "oncecron-web", "oncecron-drill")
NEEDED = ("python3", "libpq5", "tzdata", "ca-certificates")
FIRING = "until [ -e /root/done ]; do oncecron run --key loop --no-tick -- echo fired || exit; done"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.turns(1, "systems")]

New = Callable[[str, str], Root]


def build(tree: Path, directory: Path, **environment: str) -> Path:
    """Build all packages of a tree."""
    command = [sys.executable, tree / "tools" / "packages.py", directory]
    done = subprocess.run(
        command,
        env={**os.environ, "ONCECRON_BUILD_RELEASE": "yes", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if "No matching distribution found" in done.stderr:
        not_proven(f"the packages cannot be built without the package index: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    deb = directory / of(directory, ".deb").name
    assert done.stdout.startswith(f"{directory} has 19 files of oncecron ")
    assert (
        f"\nOn this host, as root: `apt-get install {deb}`, then `oncecron doctor`." in done.stdout
    )
    return directory


@pytest.fixture(scope="session")
def packages() -> Path:
    """Build the packages of this tree."""
    return build(ROOT, public_directory("packages") / "new", SOURCE_DATE_EPOCH="1790000000")


@pytest.fixture(scope="session")
def packages_before() -> Path:
    """Build those of the version before: of the same tree with a lower number, which is no clone."""
    directory = public_directory("packages")
    tree = directory / "tree"
    kept = shutil.ignore_patterns(
        *(".git", ".venv*", ".*_cache", ".hypothesis"),
        *("build", "dist", "__pycache__"),
    )
    shutil.copytree(ROOT, tree, symlinks=True, ignore=kept)
    required = [f"plugins/{name}/pyproject.toml" for name in ("drill", "web")]
    for name in ("oncecron/__init__.py", "CHANGELOG.md", "packaging/plugin/nfpm.yaml", *required):
        text = (tree / name).read_text()
        assert NEW in text
        (tree / name).write_text(text.replace(NEW, OLD))
    return build(tree, directory / "old", SOURCE_DATE_EPOCH="1780000000")


def of(directory: Path, suffix: str, package: str = "oncecron") -> Path:
    """Return the package of a kind."""
    [found] = (
        path
        for path in directory.glob(f"*{suffix}")
        if re.match(rf"{package}[-_]\d", path.name) and ".tar.xz" not in path.name
    )
    return found


def all_of(directory: Path, suffix: str, to: Path) -> list[Path]:
    """Return the packages of a kind, copied to where a host sees them: that of oncecron, and those beside it."""
    return [Path(shutil.copy(of(directory, suffix, name), to)) for name in PACKAGES]


@pytest.fixture
def packages_after(packages: Path, public_path: Path) -> list[Path]:
    """Give the .deb files of a later version, which are otherwise the same."""
    made = []
    for name in PACKAGES:
        tree = public_path / f"later-{name}"
        subprocess.run(["dpkg-deb", "-R", of(packages, ".deb", name), tree], check=True)
        modules = tree / "usr" / "lib" / name / "package"
        [record] = modules.glob("oncecron*.dist-info")
        record.rename(record.with_name(record.name.replace(NEW, LATER)))
        for path in (tree / "DEBIAN" / "control", modules / "oncecron" / "__init__.py"):
            if path.exists():
                path.write_text(
                    re.sub(
                        rf'^(Version: |__version__ = "){NEW}',
                        rf"\g<1>{LATER}",
                        path.read_text(),
                        flags=re.MULTILINE,
                    )
                )
        made.append(pack(tree, public_path / f"{name}-later.deb"))
    return made


def pack(tree: Path, made: Path) -> Path:
    """Make a .deb of a directory, as dpkg-deb has unpacked it."""
    command = ["dpkg-deb", "-Zgzip", "--root-owner-group", "-b", tree, made]
    subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture
def with_everything(packages_before: Path, public_path: Path) -> Path:
    """Give a .deb of the version before that has what three have now."""
    tree = public_path / "tree"
    subprocess.run(["dpkg-deb", "-R", of(packages_before, ".deb"), tree], check=True)
    for name in PACKAGES[1:]:
        directory = public_path / name
        subprocess.run(["dpkg-deb", "-x", of(packages_before, ".deb", name), directory], check=True)
        shutil.rmtree(next(directory.rglob("oncecron_*.dist-info")))
        for theirs, its in (
            (f"usr/lib/{name}/package", "usr/lib/oncecron/package"),
            ("usr/share/man", "usr/share/man"),
        ):
            shutil.copytree(directory / theirs, tree / its, dirs_exist_ok=True)
    return pack(tree, public_path / "everything.deb")


@pytest.fixture
def new_root(public_path: Path) -> Iterator[New]:
    """Give a function that starts a host with a root file system: (name, release); `public_path` is shared."""
    with ExitStack() as stack:

        def make(name: str, release: str) -> Root:
            host = Root(name, release, public_path)
            stack.callback(host.remove)
            return host

        yield make


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the root file systems."""
    if "release" in metafunc.fixturenames:
        metafunc.parametrize("release", [MACHINE, *(RELEASES if ALL else ())])


def configure(host: Root, store: str) -> None:
    """Write the configuration file, with a channel of `notify` that is a program."""
    text = f'store = "{store}"\n[notify.channel.file]\ncommand = "cat >>/root/told"\n'
    host("sh", "-c", f"umask 077; cat >/etc/oncecron.toml <<'E'\n{text}E")


def start_by_cron(hosts: list[Root], line: str) -> None:
    """Give each host a cron daemon with this line, until one of them has started the job."""
    for host in hosts:
        host("sh", "-c", f'echo "{line}" | crontab -')
        host.start("cron", "-f")


def upgrade_while_it_fires(host: Root, *command: object) -> None:
    """Upgrade a host that fires all the time: no firing fails, or says anything."""
    firing = host.start("sh", "-c", FIRING)
    host(*command)
    host("touch", "/root/done")
    out, _ = firing.communicate(timeout=60)
    assert (firing.returncode, {*out.split()}) == (0, {b"fired"}), out.decode()
    assert host("oncecron", "--version") == f"oncecron {NEW}\n"


def fire_side_by_side(log: PostgresLog, one: Root, other: Root) -> None:
    """Fire two versions for one tick, in both orders: the first runs the job, the other one skips."""
    for tick, first, second in (("1", one, other), ("2", other, one)):
        for host in (first, second):
            host("oncecron", "run", "--key", "side", "--tick", tick, "--", "true")
    ran = [(row.tick, row.host, row.outcome) for row in log.executions("side")]
    assert ran == [("1", one.name, "succeeded"), ("2", other.name, "succeeded")]
    assert [(skip.tick, skip.host) for skip in log.skips("side")] == [
        ("1", other.name),
        ("2", one.name),
    ]


def finish_an_interrupted_upgrade(host: Root, new: list[Path]) -> None:
    """Between its two halves the version before goes on, and `doctor` says how to end it."""
    host("dpkg", "--unpack", *new)
    assert host("oncecron", "--version") == f"oncecron {OLD}\n"
    found = json.loads(host("sh", "-c", "oncecron doctor --json || :"))
    [of_program] = [each for each in found if each["subject"] == "program"]
    assert of_program["state"] == "warn"
    assert f"; a package has brought oncecron-{NEW}, which is not in use" in of_program["text"]
    assert of_program["cure"].startswith("`dpkg --configure -a`")
    host("dpkg", "--configure", "-a")
    assert host("oncecron", "--version") == f"oncecron {NEW}\n"


def assert_all_is_well(host: Root) -> None:
    """Whatever `doctor` looks at is; what other packages are for finds them."""
    found = json.loads(host("sh", "-c", "oncecron doctor --json || :"))
    assert [each for each in found if each["state"] != "ok"] == []
    subjects = {each["subject"]: each["text"] for each in found}
    assert subjects["program"].startswith(
        f"/usr/bin/oncecron is oncecron {NEW} in /usr/lib/oncecron/{NEW}."
    )
    assert "by-cron" in host("oncecron", "metrics")
    assert "SHELL=/usr/bin/oncecron-shell" in host("oncecron-shell", "--help")
    assert "ONCECRON" in host("sh", "-c", "zcat /usr/share/man/man1/oncecron-run.1.gz")


def test_a_deb_from_its_installation_to_its_purge(
    release: str, new_root: New, ready: Database, public_path: Path, packages: Path, packages_before: Path,
) -> None:  # fmt: skip
    """On two hosts with a cron daemon: the job that runs meanwhile ends as usual, and no firing notices anything."""
    old, new = (all_of(each, ".deb", public_path) for each in (packages_before, packages))
    log = PostgresLog(ready)
    hosts = [new_root(name, release) for name in ("alpha", "beta")]
    for host in hosts:
        host("apt-get", "install", "-y", "--no-upgrade", "cron")
    # what it depends on is there on one host, whose files are compared; on the other apt-get finds it
    hosts[0]("apt-get", "install", "-y", "--no-upgrade", *NEEDED)
    before = hosts[0].changes()
    for host in hosts:
        host("apt-get", "install", "-y", *old)
        configure(host, ready.url())
        assert host("oncecron", "--version") == f"oncecron {OLD}\n"

    started, enough = public_path / "started", public_path / "enough"
    job = f"uname -n >>{started}; until [ -e {enough} ]; do sleep 0.1; done; exit 3"
    start_by_cron(hosts, f"* * * * * oncecron run --key by-cron -- sh -c '{job}'")
    eventually(lambda: started.exists() and started.read_text() != "", 90)
    for host in hosts:
        host("crontab", "-r")
    [name] = started.read_text().split()
    one, other = hosts if name == "alpha" else reversed(hosts)
    upgrade_while_it_fires(one, "apt-get", "install", "-y", *new)
    fire_side_by_side(log, one, other)
    assert [row.outcome for row in log.executions("by-cron")] == ["running"]
    enough.touch()
    eventually(lambda: log.executions("by-cron")[0].outcome != "running", 30)
    [row] = log.executions("by-cron")
    assert (row.host, row.outcome, row.exit_code, row.note) == (name, "failed", 3, None)

    finish_an_interrupted_upgrade(other, new)
    for host in hosts:
        host("oncecron", "run", "--key", "both", "--no-tick", "--", "true")
    for host in hosts:
        assert_all_is_well(host)
    hosts[0]("oncecron", "notify", "--now")  # which starts itself
    assert "by-cron" in hosts[0]("cat", "/root/told")
    compiled = ("find", "/usr/lib/oncecron/current/oncecron/run/", "-name", "firing.*.pyc")
    host = hosts[0]
    host("sh", "-c", "rm -r /usr/lib/oncecron/current/oncecron/run/__pycache__")
    host("/usr/share/python3/runtime.d/oncecron.rtupdate", "rtupdate", "python3.10", "python3.11")
    assert host(*compiled)

    host("oncecron", "run", "--store", "local", "--key", "here", "--no-tick", "--", "true")
    host("rm", "/root/told")
    said = host("apt-get", "remove", "-y", "oncecron")  # and what depends on it
    assert "/var/lib/oncecron stays; to remove it: apt-get purge oncecron" in lines_of_ours(said)
    left = host.changes() - before
    kept = ("/etc/oncecron.toml", "/var/lib/oncecron", "/root/done")
    assert [path for path in left if not path.startswith(kept)] == []
    said = host("apt-get", "purge", "-y", *PACKAGES)
    assert lines_of_ours(said) == [
        "removed /var/lib/oncecron, with the store `local`, old crontabs and what waited to be recorded",
        "/etc/oncecron.toml stays, because the package did not make it; to remove it: rm /etc/oncecron.toml",
    ]
    assert host.changes() - before <= {"/etc/oncecron.toml", "/root/done"}


def lines_of_ours(said: str) -> list[str]:
    """Return what the scripts of the package have said."""
    return re.findall("^oncecron: (.*)$", said, re.MULTILINE)


CRONTABS = {
    "/var/spool/cron/crontabs/ann": "0 2 * * * oncecron run --key bill -- bill\n",
    "/var/spool/cron/crontabs/bob": "SHELL=/usr/bin/oncecron-shell\n0 3 * * * report\n",
    "/etc/cron.d/app": "5 * * * * app cd /srv && /usr/bin/oncecron each -- app\n",
    "/etc/cron.daily/backup": "#!/bin/sh\nexec oncecron run --key backup -- backup\n",
    "/etc/cron.d/comment": "# 0 2 * * * root oncecron run --key bill -- bill\n",
    "/etc/cron.d/another": "0 2 * * * root /opt/oncecron/bin/oncecron run -- bill\n",
    "/etc/cron.d/mail": "MAILTO=oncecron@example.com\n0 2 * * * root /srv/oncecron-run\n",
}
"""Four that start the program, and three that do not."""


def test_a_removal_names_the_crontabs_that_still_start_it(
    release: str, new_root: New, public_path: Path, packages: Path
) -> None:
    """Each with its cure, before the program goes; an upgrade says nothing."""
    host = new_root("alpha", release)
    [deb, *_] = all_of(packages, ".deb", public_path)
    host("apt-get", "install", "-y", "--no-upgrade", *NEEDED)
    for path, text in CRONTABS.items():
        host("sh", "-c", f"mkdir -p {Path(path).parent}; cat >{path} <<'E'\n{text}E")
    for _ in ("installed", "upgraded"):
        assert lines_of_ours(host("dpkg", "-i", deb)) == []
    assert lines_of_ours(host("dpkg", "-r", "oncecron")) == [
        "these crontabs still start it, and their jobs fail once it is removed:",
        "  /var/spool/cron/crontabs/ann: `oncecron crontab unwrap --install --user ann`",
        "  /var/spool/cron/crontabs/bob: remove its line SHELL=/usr/bin/oncecron-shell",
        "  /etc/cron.d/app: `oncecron crontab unwrap --in-place /etc/cron.d/app`",
        "  /etc/cron.daily/backup: edit the script",
        "to run such a command, install the package again",
    ]


def test_each_module_is_compiled_once(
    release: str, new_root: New, public_path: Path, packages: Path
) -> None:
    """Also when a plugin comes later, or the system has another Python; and Installed-Size says what lies on disk."""
    host = new_root("alpha", release)
    host("apt-get", "install", "-y", "--no-upgrade", *NEEDED)
    for number, deb in enumerate(all_of(packages, ".deb", public_path), 1):
        host("dpkg", "-i", deb)
        names = PACKAGES[:number]
        said = host("dpkg-query", "-W", "-f=${Installed-Size}\n", *names).split()
        files = f"dpkg -L {' '.join(names)} | while read f; do ! [ -f $f ] || echo $f; done"
        used = host("sh", "-c", f"{files} | xargs du -kc /usr/lib/oncecron | tail -n 1").split()
        assert int(used[0]) == pytest.approx(sum(map(int, said)), rel=0.1)
        modules = host("find", "-L", "/usr/lib/oncecron/current", "-name", "*.pyc").split()
        compiled = host("find", "/usr/lib/oncecron", "-name", "*.pyc", "-printf", "%i\n").split()
        assert len({*compiled}) == len(modules)
        assert (len(compiled) > len(modules)) == (number > 1)
    old = "/usr/lib/oncecron/current/click/__pycache__/core.cpython-310.pyc"
    host("touch", old)
    host("/usr/share/python3/runtime.d/oncecron.rtupdate", "rtupdate", "python3.10", "python3.11")
    host("test", "!", "-e", old)


def works(host: Root, version: str, *commands: str) -> None:
    """Whatever dpkg has done, the host fires, of these commands has each, and nothing is left half done."""
    assert host("oncecron", "--version") == f"oncecron {version}\n"
    variables = ("env", "PYTHONHOME=/nonexistent", "PYTHONPATH=/nonexistent")  # as in a crontab
    words = ("--store", "local", "--key", "k", "--no-tick", "--", "echo", "I")
    fired = host(*variables, "oncecron", "run", *words)
    assert fired == "I\n"
    for name in ("metrics", "drill"):
        status = host("sh", "-c", f"oncecron {name} --help >/dev/null 2>&1; echo $?")
        assert (status == "0\n") == (name in commands), name
    assert host("dpkg", "--audit") == ""
    host("apt-get", "check")


def test_debs_are_upgraded_in_any_order(
    release: str, new_root: New, public_path: Path, packages: Path, packages_after: list[Path]
) -> None:
    """One by one: a plugin of another version than oncecron is not used; then all are."""
    before = all_of(packages, ".deb", public_path)
    for number, order in enumerate(itertools.permutations(range(3))):
        if not ALL and number not in (0, 3):  # oncecron first, and in the midst
            continue
        host = new_root(f"host{number}", release)
        host("apt-get", "install", "-y", "--no-upgrade", *NEEDED)
        host("dpkg", "-i", *before)
        works(host, NEW, "metrics", "drill")
        done: set[int] = set()
        for which in order:
            host("dpkg", "-i", packages_after[which])
            done.add(which)
            names = {1: "metrics", 2: "drill"}
            used = [name for each, name in names.items() if (each in done) == (0 in done)]
            works(host, LATER if 0 in done else NEW, *used)
        host("dpkg", "-r", "oncecron-web")
        works(host, LATER, "drill")


def test_debs_replace_one_that_had_everything(
    release: str, new_root: New, public_path: Path, packages: Path, with_everything: Path
) -> None:
    """Together or oncecron first; a plugin alone is refused, and breaks nothing."""
    oncecron_, *plugins = all_of(packages, ".deb", public_path)
    for together in (True, False):
        host = new_root(f"together{together}".lower(), release)
        host("apt-get", "install", "-y", "--no-upgrade", *NEEDED)
        host("dpkg", "-i", with_everything)
        works(host, OLD, "metrics", "drill")
        if together:
            said = host("sh", "-c", f"dpkg -i {plugins[0]} 2>&1 && echo installed; :")
            assert "installed" not in said.splitlines()
            assert "breaks oncecron" in said
            works(host, OLD, "metrics", "drill")
            host("apt-get", "install", "-y", oncecron_, *plugins)
        else:
            host("dpkg", "-i", oncecron_)
            works(host, NEW)
            for plugin in plugins:
                host("dpkg", "-i", plugin)
        works(host, NEW, "metrics", "drill")
        page = "/usr/share/man/man1/oncecron-web.1.gz"
        assert host("dpkg", "-S", page) == f"oncecron-web: {page}\n"


@pytest.mark.skipif(not ALL, reason="the long form: ONCECRON_TEST_ROOTS=all")
def test_an_rpm_from_its_installation_to_its_removal(
    new_root: New, public_path: Path, packages: Path, packages_before: Path
) -> None:
    """By rpm itself, on a Debian. So not proved: that dnf finds what it requires, and Enterprise Linux's own Python."""
    host = new_root("alpha", "12")
    old, new = (all_of(each, ".rpm", public_path) for each in (packages_before, packages))
    host("apt-get", "install", "-y", "rpm")
    rpm = ("rpm", "--nodeps", "--dbpath", "/var/cache/rpm")
    assert "Python 3.11 or newer is needed" in host(
        "sh", "-c", f"{' '.join(rpm)} -i {old[0]} 2>&1; :"
    )
    host("apt-get", "install", "-y", *NEEDED)
    host(*rpm, "-e", "oncecron")
    before = host.changes()
    host(*rpm, "-i", *old)
    configure(host, "sqlite:///var/lib/oncecron/x.db")
    started, enough = public_path / "started", public_path / "enough"
    job = f"touch {started}; until [ -e {enough} ]; do sleep 0.1; done"
    running = host.start("oncecron", "run", "--key", "job", "--no-tick", "--", "sh", "-c", job)
    eventually(started.exists)
    upgrade_while_it_fires(host, *rpm, "-U", *new)
    enough.touch()
    assert running.wait(30) == 0
    assert [row["outcome"] for row in json.loads(host("oncecron", "history", "job", "--json"))] == [
        "succeeded"
    ]
    assert host("readlink", "/usr/lib/oncecron/python") == "/usr/bin/python3\n"
    assert "oncecron drill" in host("oncecron", "drill", "--help")
    host(*rpm, "-e", "oncecron-drill")
    assert host("sh", "-c", "oncecron drill --help >/dev/null 2>&1 || echo gone") == "gone\n"
    said = host(*rpm, "-e", "oncecron", "oncecron-web").splitlines()
    kept = ("/etc/oncecron.toml", "/var/lib/oncecron")
    assert said == [f"oncecron: {path} stays; to remove it: rm -r {path}" for path in kept]
    left = {path for path in host.changes() - before if not path.startswith("/var/lib/oncecron")}
    assert left == {"/etc/oncecron.toml", "/root/done"}


@pytest.mark.skipif(not ALL, reason="the long form: ONCECRON_TEST_ROOTS=all")
def test_rpms_replace_one_that_had_everything(
    new_root: New, public_path: Path, packages: Path, with_everything: Path
) -> None:
    """A plugin alone conflicts with it; together they take its files over."""
    described = {
        "name": "oncecron",
        "arch": "all",
        "version": OLD,
        "maintainer": "nobody",
        "rpm": {"scripts": {"posttrans": str(ROOT / "packaging" / "rpm" / "posttrans")}},
        "contents": [{"src": f"{with_everything.parent}/tree/usr", "dst": "/usr", "type": "tree"}],
    }
    config = public_path / "everything.json"
    config.write_text(json.dumps(described))
    old = public_path / "everything.rpm"
    subprocess.run(
        [Path(sys.executable).with_name("nfpm"), "package", "-f", config, "-t", old],
        check=True,
        capture_output=True,
    )
    new = all_of(packages, ".rpm", public_path)
    host = new_root("alpha", "12")
    host("apt-get", "install", "-y", "rpm", *NEEDED)
    rpm = ("rpm", "--nodeps", "--dbpath", "/var/cache/rpm")
    host(*rpm, "-i", old)
    assert "oncecron web" in host("oncecron", "web", "--help")
    said = host("sh", "-c", f"rpm --dbpath /var/cache/rpm -U {new[1]} 2>&1; :")
    assert "oncecron < 0.1.0 conflicts with oncecron-web" in said
    host(*rpm, "-U", *new)
    assert host("oncecron", "--version") == f"oncecron {NEW}\n"
    for name, package in (
        ("web", "oncecron-web"),
        ("drill", "oncecron-drill"),
        ("run", "oncecron"),
    ):
        assert f"oncecron {name}" in host("oncecron", name, "--help")
        page = f"/usr/share/man/man1/oncecron-{name}.1.gz"
        assert host("rpm", *rpm[2:], "-qf", "--qf", "%{NAME}", page) == package


@pytest.mark.skipif(not ALL, reason="the long form: ONCECRON_TEST_ROOTS=all")
def test_lintian_has_nothing_to_say(packages: Path) -> None:
    """But for what packaging/deb/lintian-overrides has, with its reasons."""
    command = [program("lintian"), "--allow-root", "--display-info", "--pedantic"]
    command += [of(packages, ".deb", name) for name in PACKAGES]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


CHECKERS = ("spdx-tools==0.8.5", "twine==7.0.0")


@pytest.mark.skipif(not ALL, reason="the long form: ONCECRON_TEST_ROOTS=all")
def test_an_index_and_the_standard_take_what_is_made(packages: Path) -> None:
    """The wheels and sources as twine checks them before an upload, the list of what is inside as SPDX 2.3 has it."""
    directory = ROOTS / "checkers"

    def fetch() -> None:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        subprocess.run([directory / "bin/pip", "install", "-q", *CHECKERS], check=True)

    debian.once(directory, fetch)
    made = [*packages.glob("*.whl"), *packages.glob("*.tar.gz")]
    assert len(made) == 6
    subprocess.run([directory / "bin/twine", "check", "--strict", *made], check=True)
    subprocess.run(
        [directory / "bin/pyspdxtools", "-i", of(packages, ".spdx.json"), "--version", "SPDX-2.3"],
        check=True,
    )


def test_the_same_tree_gives_the_same_packages(packages: Path, tmp_path: Path) -> None:
    """Whoever builds it, wherever; the sums and the list of what is inside are among them."""
    command = 'umask 077; cd /; TZ=Asia/Tokyo LC_ALL=C exec "$@"'
    again = [sys.executable, ROOT / "tools" / "packages.py", tmp_path / "again"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000", "ONCECRON_BUILD_RELEASE": "yes"}
    subprocess.run(
        ["sh", "-c", command, "sh", *again], env=environment, check=True, capture_output=True
    )
    for path in packages.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=packages, capture_output=True, text=True, check=True
    )
    assert done.stdout.count(": OK") == len(list(packages.iterdir())) - 1 == 19


FORMS = {
    ".deb": ("/usr/bin/python3", "vendor-completions"),
    ".rpm": ("/usr/lib/oncecron/python", "site-functions"),
    ".apk": ("/usr/bin/python3", "site-functions"),
    ".pkg.tar.zst": ("/usr/bin/python3", "site-functions"),
}
"""The Python of each, and where its system looks for completion by zsh."""
COMMON = (
    "usr/bin/oncecron-shell", "usr/share/man/man7/oncecron-guarantees.7.gz", "usr/share/doc/oncecron/copyright",
    "usr/share/bash-completion/completions/oncecron", "usr/share/fish/vendor_completions.d/oncecron.fish",
    "usr/share/doc/oncecron/examples/oncecron.toml", "usr/lib/oncecron/package/redis/client.py",
    "usr/lib/oncecron/package/typing_extensions.py", "usr/lib/oncecron/package/async_timeout/__init__.py",
)  # fmt: skip


def unpack(package: Path, directory: Path) -> Path:
    """Unpack the files of a package; a .deb has them in an archive within."""
    directory.mkdir()
    bsdtar = [program("bsdtar"), "-C", directory, "-xf"]
    subprocess.run([*bsdtar, package], check=True)
    for inner in directory.glob("data.tar*"):
        subprocess.run([*bsdtar, inner], check=True)
    return directory


def test_every_package_has_the_same_files(packages: Path, tmp_path: Path) -> None:
    """Where its system has them; no machine code, so on every architecture; and the list says what is inside."""
    found: dict[str, set[str]] = {}
    document = json.loads(of(packages, ".spdx.json").read_text())
    assert all(each["licenseDeclared"] for each in document["packages"])
    versions = {each["SPDXID"]: each["versionInfo"] for each in document["packages"]}
    inside = [
        {
            f"{relation['relatedSpdxElement'][8:].replace('-', '_')}-"
            f"{versions[relation['relatedSpdxElement']]}.dist-info"
            for relation in document["relationships"]
            if f"SPDXRef-{name}" in (relation["spdxElementId"], relation["relatedSpdxElement"])
        }
        for name in PACKAGES
    ]
    for suffix, (python, zsh) in FORMS.items():
        root = unpack(of(packages, suffix), tmp_path / suffix)
        files = [path for path in root.rglob("*") if path.is_file() and "usr" in path.parts]
        found[suffix] = {str(path.relative_to(root)) for path in files}
        assert {*COMMON, f"usr/share/zsh/{zsh}/_oncecron"} <= found[suffix]
        assert (root / "usr/bin/oncecron").read_text().startswith(f"#!{python} -IS\n")
        assert not [path for path in files if path.read_bytes().startswith(b"\x7fELF")]
        modules = root / "usr/lib/oncecron/package"
        for program_ in ("oncecron", "oncecron-shell"):
            assert (root / "usr/bin" / program_).stat().st_mode & 0o777 == 0o755
        there = [{path.name for path in modules.glob("*.dist-info")}]
        for name in PACKAGES[1:]:
            beside = unpack(of(packages, suffix, name), tmp_path / f"{suffix}-{name}")
            names = {
                str(path.relative_to(beside)) for path in beside.rglob("usr/**/*") if path.is_file()
            }
            assert names & found[suffix] == set()
            assert {f"usr/share/doc/{name}/copyright", f"usr/share/man/man1/{name}.1.gz"} <= names
            assert not [
                path for path in names if (beside / path).read_bytes().startswith(b"\x7fELF")
            ]
            packaged = beside / "usr/lib" / name / "package"
            there.append({path.name for path in packaged.glob("*.dist-info")})
        assert [*map(set, there)] == inside
    private = {
        suffix: {path for path in files if "/lib/" in path} for suffix, files in found.items()
    }
    assert len({frozenset(each) for each in private.values()}) == 1


def test_the_example_of_the_configuration_is_one(tmp_path: Path) -> None:
    """It changes nothing as it is; each line that sets something can be taken as it stands."""
    text = (ROOT / "packaging" / "oncecron.toml").read_text()
    assert all(line.startswith("#") for line in text.splitlines() if line)
    lines = re.findall(r"^#(\w.*|\[.*)$", text, re.MULTILINE)
    stores = [line for line in lines if line.startswith("store")]
    config = tmp_path / "oncecron.toml"
    for store in stores:
        config.write_text("\n".join([store, *(line for line in lines if line not in stores)]))
        config.chmod(0o600)
        command = [Path(sys.executable).with_name("oncecron"), "config", "check", config]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        complaint = "/etc/oncecron.store cannot be read: No such file"
        assert done.returncode == 0 or complaint in done.stdout, done.stdout
