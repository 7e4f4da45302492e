"""The direction of imports, and what a firing may import at all."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncecron

PACKAGE = Path(oncecron.__file__).parent

# From top to bottom: a module imports only from lines below its own, or from its own package.
LAYERS = (
    ("__main__",),
    ("cli", "shell"),
    ("commands",),
    ("render",),
    ("kinds",),
    ("asking",),
    ("questions",),
    ("firing",),
    ("wrapper",),
    ("guard",),
    ("endings",),
    ("heartbeat", "telling", "capture"),
    ("claiming", "joblog", "events"),
    ("crontab",),
    ("plan", "job", "forwarder"),
    ("child", "records", "messages", "config", "texts", "attempts", "ring"),
    ("spool", "values", "together"),
    ("options",),
    ("stores",),
    ("stores.postgres", "stores.redis", "stores.sqlite"),
    ("stores.address",),
    ("store",),
    ("model",),
    ("tick",),
    ("duration", "size", "backoff", "clock", "trust", "errors", "directories"),
    ("",),
)


def place(module: str) -> tuple[str, int]:
    """Return the part that a module belongs to, and its line."""
    name = module.removeprefix("oncecron").removeprefix(".")
    while True:
        for number, parts in enumerate(LAYERS):
            if name in parts:
                return name, number
        assert "." in name, f"{module} has no place in LAYERS"
        name = name.rpartition(".")[0]


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module of the package, parsed."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports, at the top, in functions and for types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "oncecron":
                yield from (
                    f"oncecron.{alias.name}" for alias in node.names if alias.name != "__version__"
                )


def test_imports_run_down_only() -> None:
    """A module knows nothing of what is above it, and the stores nothing of each other."""
    upwards = []
    for name, tree in modules():
        part, line = place(name)
        for target in imported(tree):
            if target.split(".")[0] == "oncecron":
                other, below = place(target)
                if other != part and below <= line:
                    upwards.append(f"{name} imports {target}")
    assert upwards == []


def test_nothing_of_ours_imports_asyncio_or_a_driver_of_another_store() -> None:
    """Each driver belongs to its store's folder; asyncio to nobody."""
    owners = {"psycopg": "stores.postgres", "sqlite3": "stores.sqlite", "redis": "stores.redis"}
    strays = [
        f"{name} imports {target}"
        for name, tree in modules()
        for target in imported(tree)
        if target.split(".")[0] == "asyncio"
        or owners.get(target.split(".")[0], place(name)[0]) != place(name)[0]
    ]
    assert strays == []


def test_click_is_known_to_the_command_line_alone() -> None:
    """Click lives in cli and commands only."""
    strays = [
        name
        for name, tree in modules()
        if "click" in {target.split(".")[0] for target in imported(tree)}
        and place(name)[0] not in ("cli", "commands")
    ]
    assert strays == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_a_module_says_its_one_job_and_stays_readable(path: Path) -> None:
    """Under 400 lines, with a docstring."""
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(text))


def loaded_by(code: str) -> set[str]:
    """Return the modules of a fresh interpreter after some code."""
    code += "\nimport sys; print(' '.join(sys.modules))"
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stdout.split()} | set(done.stdout.split())


def test_the_wrapper_imports_no_driver_and_no_click() -> None:
    """What every firing pays on every host before it has decided anything."""
    loaded = loaded_by("import oncecron.firing, oncecron.options")
    heavy = {"psycopg", "sqlite3", "redis", "click", "rich", "asyncio", "json", "cronsim", "zoneinfo",
             "tomllib", "inspect", "dataclasses", "pathlib", "logging", "subprocess", "uuid", "random"}  # fmt: skip
    assert loaded & heavy == set()


def test_the_shell_of_a_crontab_costs_what_run_costs() -> None:
    """Beside what `run` imports, only the rule of the key; and no click."""
    more = loaded_by("import oncecron.shell, oncecron.firing") - loaded_by("import oncecron.firing")
    assert {name for name in more if name.startswith("oncecron.")} == {
        *("oncecron.shell", "oncecron.crontab"),
        *("oncecron.crontab.naming", "oncecron.crontab.words"),
    }
    assert more & {"click", "re", "hashlib", "hypothesis", "cronsim"} == set()
    assert len(more) <= 6


@pytest.mark.parametrize(
    ("module", "driver"),
    [
        ("oncecron.stores.postgres.firing", "oncecron.stores.postgres.libpq"),
        ("oncecron.stores.sqlite.firing", "sqlite3"),
    ],
)
def test_a_firing_imports_one_driver(module: str, driver: str) -> None:
    """Neither the other store's, nor rich, nor click; and of PostgreSQL's only the bare library."""
    others = {"psycopg", "sqlite3", "redis", "click", "rich"} - {driver}
    loaded = loaded_by(f"import oncecron.firing, {module}")
    assert driver in loaded
    assert loaded & others == set()


def test_a_firing_on_redis_imports_no_driver() -> None:
    """redis-py costs 94 ms, `ssl` 10 and `socket` 4: a firing pays for none that it does not use."""
    loaded = loaded_by("import oncecron.firing, oncecron.stores.redis.firing")
    assert "oncecron.stores.redis.wire" in loaded
    heavy = {
        "redis",
        "psycopg",
        "json",
        "hashlib",
        "urllib",
        "ssl",
        "socket",
        "selectors",
        "encodings.idna",
        "sqlite3",
    }
    assert loaded & heavy == set()
