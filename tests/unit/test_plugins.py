"""How plugins meet: what they bring is put together, and one that does not load costs nobody else anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import click
import pytest

import oncecron
from oncecron import plugins
from oncecron.cli import history as cli_history
from oncecron.cli.group import Listed
from oncecron.cli.main import ONCECRON, invoke
from oncecron.config.file import File
from oncecron.config.file_reader import FileProblem
from oncecron.core.errors import ConfigurationError, StoreUnavailable
from oncecron.core.log_rows import Execution, JobKey, LeaseView
from oncecron.core.model import Retention
from oncecron.core.text import Clock
from oncecron.log.sources import Sources
from oncecron.plugins import Plugin, brought, problems_of, work_of
from oncecron.watch import findings
from oncecron.watch.findings import WARNING, Kind, Limits, check, finding, usual_states
from oncecron.watch.situation import situation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncecron.stores.reader import Reader

    Bring = Callable[..., None]

NOW = 1_795_400_000.0
FILE = File(None, {}, {}, None, Retention())
ENDED = Execution(
    *(1, "k", 0, "one", 1, "failed", 1, None, "web1", 5, "ann", "send", NOW - 9, NOW - 5, 4.0, 7),
    owner="o",
    note=None,
    shards=1,
)
LEASE = LeaseView(
    *("k", 0, "one", 1, 1, "held", "web1", 5, "ann", NOW - 9, NOW - 5, NOW + 50, 7, None, None)
)


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bring]:
    """Give what installs some plugins, and no others."""

    def forget() -> None:
        plugins.installed.cache_clear()
        plugins.of_others.cache_clear()
        findings.kinds.cache_clear()

    def install(*brought: object) -> None:
        names = [f"plugin_{number}" for number in range(len(brought))]
        for name, plugin in zip(names, brought, strict=True):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
            monkeypatch.setitem(sys.modules, f"{name}.plugin", cast("Any", plugin))
        monkeypatch.setattr(plugins, "_PLUGINS", tuple(names))
        forget()

    yield lambda *brought: install(*(SimpleNamespace(PLUGIN=each) for each in brought))
    forget()


class Known(SimpleNamespace):
    """How far the work of one key is."""

    key: str
    is_over = False

    def newest(self, key: str) -> str | None:
        return f"{key} 1/2" if key == self.key else None

    def of_tick(self, key: str, tick: str) -> str | None:
        return f"{tick} 1/2" if key == self.key else None

    def is_settled(self, _ended: Execution) -> bool:
        return self.is_over


def sources(**answers: Any) -> Sources:
    """Return a store with one key that has run."""
    empty = ("pauses", "leases", "key_hosts")
    store = SimpleNamespace(
        job_keys=lambda: [JobKey("k", 0, None, NOW - 9)],
        newest=lambda _limit, _keys: iter([ENDED]),
        history=lambda _query: iter([ENDED]),
        reasons=lambda _since: iter(()),
        skips=lambda _query: iter(()),
        unreadable=0,
        **dict.fromkeys(empty, list) | answers,
    )
    people = cast("Reader", store)
    return Sources(people, people, NOW)


def test_mistakes_of_all_plugins_are_those_of_the_file(bring: Bring) -> None:
    """The file's own come first."""
    one, two, own = (FileProblem("f", text) for text in ("one", "two", "own"))
    bring(Plugin(problems=lambda _file: [one]), Plugin(), Plugin(problems=lambda _file: [two]))
    assert [*problems_of(FILE._replace(problems=(own,)))] == [own, one, two]


def test_what_a_plugin_explains_the_core_leaves_out(bring: Bring) -> None:
    """By the place of the name; what is wrong elsewhere, or with the whole section, stays."""
    of_core = [
        FileProblem("f", "unknown", section, name)
        for section in ("[job.k]", "[job.l]")
        for name in ("a", "b", "")
    ]
    better = [FileProblem("f", "better", "[job.k]", name) for name in ("a", "")]
    bring(Plugin(problems=lambda _file: better))
    assert [*problems_of(FILE._replace(problems=tuple(of_core)))] == [*of_core[1:], *better]


def failing(*_asked: object) -> Iterator[Any]:
    yield FileProblem("f", "first")
    raise KeyError("idea")


@pytest.mark.parametrize("fails", [failing, lambda *_asked: 1 // 0])
def test_a_plugin_that_fails_is_one_line_and_the_others_are_asked(
    bring: Bring, capfd: pytest.CaptureFixture[str], fails: Callable[..., Any]
) -> None:
    """However often it is asked. What the store does not answer is no fault of the plugin."""
    plugins._failed.cache_clear()
    second = FileProblem("f", "second")
    bring(Plugin(problems=fails), Plugin(problems=lambda _file: [second]))
    for _ in range(2):
        assert [*problems_of(FILE)][-1] == second
    assert re.fullmatch(
        "oncecron: the plugin plugin_0 failed, and its answer is left out: "
        "(KeyError: 'idea'|ZeroDivisionError: .*); report it to the authors of oncecron\n",
        capfd.readouterr().err,
    )
    with pytest.raises(StoreUnavailable):
        next(brought(lambda _plugin: unreachable()))


def unreachable() -> list[str]:
    raise StoreUnavailable("refused")


def test_work_that_fails_is_not_known(bring: Bring, capfd: pytest.CaptureFixture[str]) -> None:
    """Whether the plugin fails at once, or for each key."""
    plugins._failed.cache_clear()
    broken = SimpleNamespace(newest=fail, of_tick=fail, is_settled=fail)
    bring(Plugin(work=fail), Plugin(work=lambda _: broken), Plugin(work=lambda _: Known(key="k")))
    work = work_of(sources())
    assert (work.newest("k"), work.of_tick("k", "t"), work.is_settled(ENDED)) == (
        *("k 1/2", "t 1/2", False),
    )
    assert len(capfd.readouterr().err.splitlines()) == 2


def fail(*_asked: object) -> Any:
    raise KeyError("idea")


@pytest.mark.parametrize("settled", [(False, False), (False, True), (True, False)])
def test_who_knows_how_far_work_is_says_so(bring: Bring, settled: tuple[bool, bool]) -> None:
    """Of a key, and of a tick; one that knows that nothing is left to do is enough."""
    one, two = (Known(key=key, is_over=is_over) for key, is_over in zip("ak", settled, strict=True))
    bring(Plugin(), Plugin(work=lambda _sources: one), Plugin(work=lambda _sources: two))
    work = work_of(sources())
    assert [work.newest(key) for key in "akz"] == ["a 1/2", "k 1/2", None]
    assert [work.of_tick(key, "t") for key in "akz"] == ["t 1/2", "t 1/2", None]
    assert work.is_settled(ENDED) is any(settled)


def test_leases_show_how_far_the_work_of_their_tick_is(bring: Bring) -> None:
    """One without a tick has none."""
    bring(Plugin(work=lambda _sources: Known(key="k")))
    leases = [LEASE, LEASE._replace(tick=None), LEASE._replace(key="other")]
    found = [each.progress for each in sources(leases=lambda: leases).progressing()]
    assert found == ["one 1/2", None, None]


def test_what_several_plugins_ask_the_store_is_read_once(bring: Bring) -> None:
    """Also where a plugin asks it for its work and for its findings."""
    asked = []

    def ask(reader: Reader) -> str:
        asked.append(reader)
        return "answer"

    reads = sources()
    bring(Plugin(work=lambda given: Known(key=given.once(ask))))
    assert (reads.work.newest("answer"), reads.once(ask)) == ("answer 1/2", "answer")
    assert asked == [reads.store]


ODD = Kind(WARNING, "Odd keys.", "{key} is odd", has_count=True, says=("failed", "k"))


def test_findings_of_plugins_are_found_with_the_others(bring: Bring) -> None:
    """Theirs are judged by their own kind, and stand for what they say better."""

    def odd(given: Sources, file: File) -> Iterator[findings.Finding]:
        assert (given.now, file) == (NOW, FILE)
        yield from (finding("odd", key, 3, f"{key} is odd") for key in ("k", "unknown"))

    bring(Plugin(), Plugin(kinds={"odd": ODD}, findings=odd))
    limits = Limits(1, 3, usual_states())
    situation = situation_of(sources(), FILE, limits)
    checked = check(situation, limits, Clock(utc=True))
    assert [(each.finding, each.state, each.key) for each in checked.findings] == [
        ("odd", "warning", "k")
    ]
    assert " odd=3;0 " in next(findings.lines(checked, limits.states))
    assert findings.states_of({"critical": "odd"})["odd"] == findings.CRITICAL
    unwanted = Limits(1, 3, {**usual_states(), "odd": findings.OK})
    assert situation_of(sources(), FILE, unwanted).remarks(Clock(utc=True)) == []
    others = situation_of(sources(), FILE, limits, keys=["other"])
    assert others.remarks(Clock(utc=True)) == []


def test_what_is_not_installed_is_not_known(bring: Bring) -> None:
    """Nor is it missed."""
    bring()
    assert "in-doubt" not in usual_states()
    assert sources().work.newest("k") is None


@pytest.fixture
def others(bring: Bring, monkeypatch: pytest.MonkeyPatch) -> Bring:
    """Give what makes objects the entry points of other packages, with no plugin of ours."""

    def install(*brought: object) -> None:
        bring()
        names = [f"other_{number}" for number in range(len(brought))]
        for name, plugin in zip(names, brought, strict=True):
            monkeypatch.setitem(
                sys.modules, name, cast("Any", SimpleNamespace(PLUGIN=plugin, __spec__=name))
            )
        found = [metadata.EntryPoint(name, f"{name}:PLUGIN", "oncecron.commands") for name in names]
        monkeypatch.setattr(metadata, "entry_points", lambda group: found if group else ())

    return install


def listed(about: str) -> Plugin:
    """Return a plugin with some commands, also with names of ours."""
    names = ("extra", "history", "web")
    return Plugin({name: Listed(about, "other_0.cli", "x") for name in names})


def test_no_package_replaces_an_official_command(others: Bring) -> None:
    """Not even one that is not installed; and the help names ours alone."""
    others(listed("Do more."))
    context = click.Context(ONCECRON, info_name="oncecron")
    history = ONCECRON.get_command(context, "history")
    assert (history, ONCECRON.names["history"].about) == (cli_history.COMMAND, history.short_help)
    shown = ONCECRON.get_help(context)
    assert shown.count("Do more. [other_0]") == 1
    assert shown.endswith("\nOf other packages:\n  extra  Do more. [other_0]")
    offered = [each.value for each in ONCECRON.shell_complete(context, "")]
    assert len(offered) == len({*offered})


def test_what_is_no_plugin_is_left_out(others: Bring, capfd: pytest.CaptureFixture[str]) -> None:
    """With one line, however often it is asked for. The others are there."""
    good = Plugin()
    others({"commands": {}}, good)
    found = plugins.installed()
    assert found == plugins.installed() == plugins.of_others() == ((good, "other_1", "other_1"),)
    assert capfd.readouterr().err == (
        "oncecron: the plugin other_0 cannot be loaded and is left out: "
        "other_0:PLUGIN is not an oncecron.plugins.Plugin; install other_0 again\n"
    )


def test_a_command_of_another_package_that_fails_is_named(others: Bring) -> None:
    """Whatever its module raises: it is no fault of ours."""
    others(listed("Do more."))
    with pytest.raises(ConfigurationError) as raised:
        invoke(["extra"])
    assert str(raised.value) == (
        "extra of other_0 cannot be loaded: No module named 'other_0.cli'; 'other_0' is not a package; "
        "install other_0 again"
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Give a directory with the core and the plugins, without the list of their files, and with what they need."""
    for entry in Path(oncecron.__file__).parent.parent.iterdir():
        if not entry.name.startswith("oncecron"):
            (tmp_path / entry.name).symlink_to(entry)
        elif entry.suffix != ".dist-info":
            shutil.copytree(entry, tmp_path / entry.name)
    return tmp_path


LEFT_OUT = "cannot be loaded and is left out: "


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("true", ""),
        ("rm -r oncecron_crontab", ""),
        ("echo 'raise TypeError(\"no\" + chr(10) + \"idea\")' >>oncecron_each/plugin.py", f"{LEFT_OUT}no idea"),
        ("echo ')' >>oncecron_each/plugin.py", f"{LEFT_OUT}unmatched ')'"),
        ("echo 'del PLUGIN' >>oncecron_each/plugin.py", f"{LEFT_OUT}module"),
        ("echo 'import none' >>oncecron_each/plugin.py", f"{LEFT_OUT}No module named 'none'"),
        ("rm oncecron_each/plugin.py", f"{LEFT_OUT}No module named 'oncecron_each.plugin'"),
        ("echo 'PLUGIN = PLUGIN._replace(findings=None)' >>oncecron_each/plugin.py", "failed, and its answer"),
    ],
)  # fmt: skip
def test_a_plugin_that_does_not_load_is_one_line_and_nothing_to_a_firing(
    home: Path, harm: str, said: str
) -> None:
    """People's commands answer without it."""
    for name in ("oncecron_crontab", "oncecron_each"):
        pytest.importorskip(name)
    subprocess.run(["sh", "-c", harm], cwd=home, check=True)
    environment = {
        "PYTHONPATH": str(home),
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ONCECRON_STORE": f"sqlite://{home}/store.db",
    }

    def oncecron_with(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-m", "oncecron", *words]
        return subprocess.run(
            command, env=environment, cwd=home, capture_output=True, text=True, check=False
        )

    fired = oncecron_with("run", "--key", "k", "--tick", "1", "--", "echo", "ran")
    assert (fired.returncode, fired.stdout, fired.stderr) == (0, "ran\n", "")
    told = oncecron_with("check")
    assert (told.returncode, "ONCECRON OK: 1 of 1 key ok" in told.stdout) == (0, True), told.stderr
    lines = told.stderr.splitlines()
    assert len(lines) == bool(said), lines
    is_loaded = not said.startswith(LEFT_OUT)
    cure = "report it to the authors of oncecron" if is_loaded else "install oncecron again"
    assert all(f"the plugin oncecron_each {said}" in line for line in lines)
    assert all(line.endswith(cure) for line in lines)
    assert (" in-doubt=" in told.stdout) == is_loaded
