"""What a TAB offers in bash, in zsh and in fish."""

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import story_stores
from log_of import Store
from servers import eventually
from servers.oncecron import CONSOLE_SCRIPT, Oncecron, patient_script
from servers.process import free_port
from servers.require import program
from terminals import Terminal, terminal

SHELLS = ("bash", "zsh", "fish")
KEYS = ("billing", "db.backup", "report")
HOSTILE = ("$(touch pwned)", "`id`", "a;b", "a b", "a\tb", "--force", "*", "~root", "ä")

SETUP = {
    "bash": "source <(oncecron completion bash)",
    "zsh": "source <(oncecron completion zsh)",
    "fish": "oncecron completion fish | source",
}


class Fish:
    """fish, which tells what it offers when it is asked."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.shown = ""
        """What it has complained of."""
        self._environment = environment

    def offered(self, line: str) -> list[str]:
        """Return what is offered for the last word of a line, sorted."""
        done = subprocess.run(
            [program("fish"), "-c", f"{SETUP['fish']}\ncomplete -C $argv", line],
            env=dict(self._environment), capture_output=True, text=True, check=True,
        )  # fmt: skip
        self.shown += done.stderr
        return sorted(offer.split("\t")[0] for offer in done.stdout.splitlines())


Shell = Terminal | Fish


def assert_offered(shell: Shell, line: str, expected: list[str]) -> None:
    """Assert what the installed program offers: a busy machine may take more than its second for an answer."""

    def as_expected() -> bool:
        assert shell.offered(line) == expected
        return True

    eventually(as_expected, 30)


def environment_in(home: Path, store: str, script: Path = CONSOLE_SCRIPT) -> dict[str, str]:
    """Return the environment of a shell, in which `script` is found as oncecron."""
    return {
        "PATH": f"{script.parent}:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8",
        "ONCECRON_STORE": store, "XDG_STATE_HOME": str(home), "PYTHONWARNINGS": "error",
    }  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with a store in which three keys have run on three hosts, and on some with odd names."""
    path = tmp_path_factory.mktemp("home")
    url = f"sqlite://{path}/oncecron.db"
    hosts = ("web1", "web2", "db-1")
    for number, host in enumerate((*hosts, *HOSTILE)):
        on_host = Oncecron(url, path, "state", ONCECRON_HOST=host)
        assert on_host.run(KEYS[number % 3], "--tick", f"t{number}", "--", "true").status == 0
    return path


@pytest.fixture(scope="module")
def new_shell() -> Iterator[Callable[[str, Mapping[str, str]], Shell]]:
    """Give a function that starts a shell: (one of SHELLS, environment)."""
    with ExitStack() as stack:

        def start(shell: str, environment: Mapping[str, str]) -> Shell:
            if shell == "fish":
                return Fish(environment)
            return stack.enter_context(terminal(shell, SETUP[shell], environment))

        yield start


@pytest.fixture(scope="module")
def shells() -> dict[str, Shell]:
    """Keep the shells that are at their prompts."""
    return {}


@pytest.fixture
def shell(
    request: pytest.FixtureRequest,
    home: Path,
    new_shell: Callable[..., Shell],
    shells: dict[str, Shell],
) -> Shell:
    """Give a shell at its prompt: one for all tests, because starting it takes longer than a hundred answers."""
    name = request.param
    if name not in shells:
        environment = environment_in(home, f"sqlite://{home}/oncecron.db", patient_script())
        shells[name] = new_shell(name, environment)
    return shells[name]


def in_each_shell(*cases: tuple[str, Any], shells: Sequence[str] = SHELLS) -> list[Any]:
    return [
        pytest.param(shell, *case, id=f"{case[0]}-{shell}") for case in cases for shell in shells
    ]


def in_a_shell(*cases: tuple[str, Any], shells: Sequence[str] = SHELLS) -> list[Any]:
    """Return each case with the shell that the seed chooses for it; with each where all stores are wanted.

    What is offered is decided by the program, whatever the shell.
    """
    if story_stores.wanted() == "all":
        return in_each_shell(*cases, shells=shells)
    turn = story_stores.seed()
    return [
        each
        for number, case in enumerate(cases)
        for each in in_each_shell(case, shells=[shells[(number + turn) % len(shells)]])
    ]


@pytest.mark.parametrize(
    ("shell", "line", "offered"),
    [
        *in_a_shell(
            ("oncecron hi", "history"),
            ("oncecron un", "undrain"),
            ("oncecron history --fo", "--follow --format"),
            ("oncecron history --format ", "csv json ndjson table"),
            ("oncecron crontab ", "lint unwrap wrap"),
            ("oncecron crontab wrap --on", "--only"),
            ("oncecron config check /etc/host.con", "/etc/host.conf"),
            ("oncecron history --config /etc/host.con", "/etc/host.conf"),
            # Of the store.
            ("oncecron why ", "billing db.backup report"),
            ("oncecron history --limit 3 r", "report"),
            ("oncecron run --key ", "billing db.backup report"),
            ("oncecron history --host ", "db-1 web1 web2"),
            ("oncecron why --namespace ", "oncecron"),
            ("oncecron history --store sqlite:///none.db ", ""),
            # Nothing of which we know.
            ("oncecron nonsense ", ""),
            ("oncecron crontab nonsense --o", ""),
            ("oncecron history --since ", ""),
            # The command of `run` is not ours.
            ("oncecron run --key x -- cat /etc/host.con", "/etc/host.conf"),
        ),
    ],
    indirect=["shell"],
)  # fmt: skip
def test_a_shell_offers(shell: Shell, line: str, offered: str) -> None:
    """Commands, options, values, names of the store; what the job takes is the job's."""
    assert shell.offered(line) == offered.split()


@pytest.mark.parametrize(
    ("shell", "line", "completed"),
    in_a_shell(
        ("oncecron hi", "oncecron history "),
        ("oncecron why d", "oncecron why db.backup "),
        shells=SHELLS[:2],
    ),
    indirect=["shell"],
)
def test_a_tab_completes_a_word(shell: Terminal, line: str, completed: str) -> None:
    """With a blank behind it."""
    assert shell.after_tab(line).replace("  ", " ") == completed  # zsh sets off what follows


# The answer that the scripts are given


def answer(line: str, environment: Mapping[str, str], script: Path | None = None) -> list[str]:
    """Return the values that are offered for the end of a line, after however long."""
    done = subprocess.run(
        [script or patient_script()], capture_output=True, text=True, check=False,
        env={
            **environment, "COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")),
            "_ONCECRON_COMPLETE": "bash_complete",
        },
    )  # fmt: skip
    assert done.stderr == ""
    return [offer.partition(",")[2] for offer in done.stdout.splitlines() if offer]


def test_every_store_is_asked(store: Store, new_host: Callable[..., Oncecron]) -> None:
    """For keys, for hosts that ran, were refused or are drained, and for namespaces."""
    a = new_host("host-a", ONCECRON_STORE=store.owner_url)
    assert answer("oncecron why ", a.environment) == []
    a.run("billing", "--tick", "t1", "--", "true")
    a.run("report", "--shards", "2", "--tick", "t1", "--", "true")
    new_host("host-b").run("billing", "--tick", "t1", "--", "true")
    a("drain", "host-c", "--new")
    a.run("other", "--namespace", "staging", "--tick", "t1", "--", "true")
    for line, offered in (
        ("oncecron why ", ["billing", "report"]),
        ("oncecron undrain ", ["host-a", "host-b", "host-c"]),
        ("oncecron why --namespace staging ", ["other"]),
        ("oncecron why --namespace ", ["oncecron", "staging"]),
        ("oncecron why --namespace none --namespace s", ["staging"]),
        ("oncecron why --namespace none ", []),
    ):
        assert answer(line, a.environment) == offered, line


@pytest.fixture
def deaf() -> Iterator[int]:
    """Give a port at which connections are taken and nothing is answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("at", "scheme", "how"),
    in_a_shell(
        ("postgresql", "deaf"), ("redis", "deaf"), ("postgresql", "refused"), ("redis", "refused")
    ),
)
def test_a_store_that_is_away_offers_nothing(
    tmp_path: Path, new_shell: Callable[..., Shell], deaf: int, at: str, how: str, scheme: str
) -> None:  # fmt: skip
    """Within about a second, and without a word; all else is completed."""
    port = deaf if how == "deaf" else free_port()
    environment = environment_in(tmp_path, f"{scheme}://user:secret@127.0.0.1:{port}/")
    at_prompt = new_shell(at, environment)
    assert_offered(at_prompt, "oncecron hi", ["history"])

    def is_offered_nothing_soon() -> bool:
        began = time.monotonic()
        assert at_prompt.offered("oncecron why ") == []
        return time.monotonic() - began < 9  # drivers wait for ten, each time

    eventually(is_offered_nothing_soon)
    assert_offered(at_prompt, "oncecron un", ["undrain"])
    for word in ("secret", "refused", "store", "exited", "terminated", "Traceback", "Timeout"):
        assert word not in at_prompt.shown.partition("<ready>")[2]


def test_a_store_that_hangs_is_left_after_a_second(tmp_path: Path, deaf: int) -> None:
    """Not much sooner, and with status 1, which no shell shows."""
    environment = environment_in(tmp_path, f"postgresql://u:secret@127.0.0.1:{deaf}/")

    def is_left_soon() -> bool:
        began = time.monotonic()
        assert answer("oncecron why ", environment, CONSOLE_SCRIPT) == []
        taken = time.monotonic() - began
        assert taken > 0.9
        return taken < 9  # drivers wait for ten, each time

    eventually(is_left_soon)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "line",
    [
        *("oncecron why --store ftp:// ", "oncecron why --config /none ", "oncecron why --store= "),
        *("", "oncecron", "oncecron why 'a", 'oncecron why "a\\', "oncecron why --host="),
        *("oncecron run --", "oncecron no --f"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_line_is_not_told(tmp_path: Path, line: str) -> None:
    """A half of a line often is; `answer` looks at what is complained of."""
    answer(line, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})


# What is no TAB


@pytest.mark.turns(1)
@pytest.mark.parametrize("arguments", ["--version", "run --key k --tick t -- echo run", "jobs", "histroy"])  # fmt: skip
def test_a_command_that_is_typed_is_carried_out(tmp_path: Path, arguments: str) -> None:
    """Whatever it inherits."""
    environment = environment_in(tmp_path, f"sqlite://{tmp_path}/oncecron.db")
    inherited = {
        "_ONCECRON_COMPLETE": "bash_complete",
        "COMP_WORDS": "oncecron h",
        "COMP_CWORD": "1",
    }
    ended = []
    for more in ({}, inherited):
        (tmp_path / "oncecron.db").unlink(missing_ok=True)
        ended.append(
            subprocess.run(
                [CONSOLE_SCRIPT, *arguments.split()], env={**environment, **more},
                capture_output=True, text=True, check=False,
            )
        )  # fmt: skip
    plain, with_variables = ended
    assert (plain.returncode, plain.stdout, plain.stderr) == (
        with_variables.returncode, with_variables.stdout, with_variables.stderr,
    )  # fmt: skip
    assert plain.stdout or plain.stderr


# The scripts


def test_zsh_finds_its_script_by_itself(home: Path, tmp_path: Path) -> None:
    """It is a function's file, too: the packages put it where zsh looks."""
    environment = environment_in(home, f"sqlite://{home}/oncecron.db", patient_script())
    printed = subprocess.run([CONSOLE_SCRIPT, "completion", "zsh"], capture_output=True, check=True)
    (tmp_path / "_oncecron").write_bytes(printed.stdout)
    setup = f"fpath+=({shlex.quote(str(tmp_path))}); compinit -D -u"
    with terminal("zsh", setup, environment) as zsh:
        assert zsh.after_tab("oncecron hi") == "oncecron history "
