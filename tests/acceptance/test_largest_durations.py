"""Every duration at its largest value, on every store: no number of a server or of the system overflows."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from command_tree import every_command
from log_of import Store
from servers.oncecron import Oncecron
from servers.waiting import eventually

from oncecron.config.options import RUN_OPTION, RUN_OPTIONS, Option
from oncecron.core.units import DAY, LONGEST_DURATION
from oncecron_each.options import EACH_OPTIONS

Hosts = Callable[..., Oncecron]

_MINUTELY = ["--schedule", "* * * * *"]
BESIDE = {"starting-deadline": _MINUTELY, "catch-up": _MINUTELY, "retry-delay": ["--retries", "1"]}
"""What has to be given so that the value counts."""
ELSEWHERE = {
    ("init", "keep-executions"): ["init"],
    ("init", "keep-skips"): ["init"],
    **{
        ("check", name): ["check"]
        for name in ("timeout", "missed-after", "silent-after", "stopped-after")
    },
    ("drain", "for"): ["drain", "elsewhere", "--new"],
    ("pause", "for"): ["pause", "k"],
    ("stop", "grace"): ["stop", "k"],
    ("prune", "executions"): ["prune"],
    ("prune", "skips"): ["prune"],
}
"""The commands besides `run` and `each` that take a duration."""


def largest(option: Option) -> str:
    return f"{option.maximum or LONGEST_DURATION:.0f}s"


def durations(options: tuple[Option, ...]) -> list[Option]:
    return [option for option in options if option.kind in ("duration", "range")]


def test_every_duration_is_tried() -> None:
    """A new one is found here."""
    found = {
        (name, option.name)
        for name, one in every_command().items()
        if name not in ("run", "each")
        for option in durations(one.table)
    }
    assert found == set(ELSEWHERE)


def test_a_firing_takes_the_largest_values(store: Store, host: Oncecron) -> None:
    """The job runs, and its end is on record."""
    for option in durations(RUN_OPTIONS):
        if option.name == "spread":  # see the next test
            continue
        words = [f"--{option.name}", largest(option), *BESIDE.get(option.name, [])]
        ended = host.run(option.name, *words, "--", "true")
        assert (ended.status, ended.err) == (0, ""), (option.name, ended)
        assert store.executions(option.name)[0].outcome == "succeeded"


def test_each_takes_the_largest_values(store: Store, host: Oncecron) -> None:
    """The item is run, and the end of its slot is on record."""
    for option in durations(EACH_OPTIONS):
        if option.name == "spread":  # see the next test
            continue
        words = [f"--{option.name}", largest(option), *BESIDE.get(option.name, [])]
        ended = host("each", "--key", option.name, *words, "--items", "echo 1", "--", "true")
        assert (ended.status, ended.err) == (0, ""), (option.name, ended)
        outcomes = {execution.outcome for execution in store.executions(option.name)}
        assert outcomes == {"succeeded"}


def test_the_largest_spread_is_a_wait_that_a_signal_ends(host: Oncecron) -> None:
    """Nothing has been claimed then."""
    firing = host.fire("k", "-v", "--spread", largest(RUN_OPTION["spread"]), "--", "true")
    assert firing.process.stderr
    assert b"(--spread)" in firing.process.stderr.readline()
    firing.process.send_signal(signal.SIGTERM)
    assert firing.wait().status == -signal.SIGTERM


def test_a_retry_waits_for_the_largest_delay(store: Store, host: Oncecron) -> None:
    """It is renewed meanwhile, and a signal ends the wait."""
    words = ["--retries", "1", "--retry-delay", largest(RUN_OPTION["retry-delay"])]
    firing = host.fire("k", *words, "--", "false")
    eventually(lambda: store.executions("k")[0].outcome == "failed", retry_on=IndexError)
    firing.process.send_signal(signal.SIGTERM)
    assert firing.wait().status == 1


def test_a_firing_waits_with_all_of_them(store: Store, new_host: Hosts, public_path: Path) -> None:
    """For a job of another host, with the largest values of both; then it has its turn."""
    words = ["--no-tick"]
    for name in ("wait", "ttl", "connect-timeout", "grace", "timeout"):
        words += [f"--{name}", largest(RUN_OPTION[name])]
    go = public_path / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    first = new_host("host-a").fire("k", *words, "--", "sh", "-c", wait)
    eventually(lambda: store.executions("k")[0].outcome == "running", retry_on=IndexError)
    second = new_host("host-b").fire("k", "-v", *words, "--", "true")
    assert second.process.stderr
    assert b"waiting" in second.process.stderr.readline()
    go.touch()
    assert first.wait().status == 0
    assert second.wait().status == 0
    assert [execution.outcome for execution in store.executions("k")] == ["succeeded"] * 2


@pytest.mark.own_log
def test_people_may_give_the_largest_values(store: Store, host: Oncecron, new_host: Hosts) -> None:
    """To keep records, to pause, to stop a running job, to prune."""
    owner = new_host(ONCECRON_STORE=store.owner_url)
    commands = every_command()
    firing = host.fire("k", "--", "sleep", "60")
    eventually(lambda: store.executions("k")[0].outcome == "running", retry_on=IndexError)
    for (name, option_name), words in ELSEWHERE.items():
        option = next(one for one in commands[name].table if one.name == option_name)
        ended = owner(*words, f"--{option.name}", largest(option))
        assert ended.status == 0, (name, ended)
    assert firing.wait().status == 128 + signal.SIGTERM
    ended = host("history", "--since", f"{LONGEST_DURATION / DAY:g}d")
    assert ended.status == 0


@pytest.mark.own_log
def test_the_longest_retention(store: Store, new_host: Hosts, public_path: Path) -> None:
    """In the configuration file."""
    config = public_path / "oncecron.toml"
    years = f"{LONGEST_DURATION / DAY:g}d"
    config.write_text(f'[retention]\nexecutions = "{years}"\nskips = "{years}"\n')
    config.chmod(0o600)
    host = new_host(ONCECRON_STORE=store.owner_url)
    assert host.run("k", "--config", config, "--", "true") == (0, b"", "")
    assert host("prune", "--config", config).status == 0
    assert store.executions("k")[0].outcome == "succeeded"
