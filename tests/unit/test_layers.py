"""The direction of imports, and what a firing may import at all."""

import ast
import functools
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncecron
from oncecron.core import system
from oncecron.core.units import LONGEST_DURATION

PACKAGE = Path(oncecron.__file__).parent

KERNEL = ("run", "config", "stores", "core")
"""The packages of the kernel from the top floor down: a module imports only from its own floor and from those below."""

WINGS = ("each", "crontab", "pages")
"""They stand beside each other below `cli`, and read by what is below them: `alerts`, and below it `log`."""

MEETING = "oncecron.plugins"
"""What a plugin may bring. It names for types what stands above it, and imports nothing of that."""

FLOORS = (
    *(("__main__",), ("cli",), ("drill",), WINGS, ("alerts",), ("log",), ("plugins",)),
    *((name,) for name in KERNEL),
)

STORES = ("postgres", "redis", "sqlite")
LIGHT_FLOORS = ("core", "config", "run", "stores")
"""What a firing imports: `typing` for the type checker alone."""


def floor(module: str) -> str:
    """Return the floor that a module is on: the first name behind `oncecron`, none for the package itself.

    What a wing brings to people's commands, its module `plugin`, stands with its commands in `cli`.
    """
    return "cli" if is_plugin(module) else f"{module}.".split(".")[1]


def is_plugin(module: str) -> bool:
    """Return whether a module has a `PLUGIN`."""
    return module.split(".")[2:] == ["plugin"]


def store(module: str) -> str | None:
    """Return the store that a module belongs to, if it belongs to one."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["stores"] and parts[2:3] and parts[2] in STORES else None


@functools.cache
def modules() -> list[tuple[str, ast.Module]]:
    """Return every module of the package, parsed."""
    return [(name_of(path), ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


def name_of(path: Path) -> str:
    """Return the name by which a module is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


def test_each_module_is_on_a_floor() -> None:
    """A new package or module at the top has to say where it stands."""
    assert {floor(name) for name, _ in modules()} == {*itertools.chain(*FLOORS), ""}


def test_what_is_imported_is_there() -> None:
    """Also where a function imports it, which only some command or fault would show."""
    known = {name for name, _ in modules()}
    missing = [
        f"{name} imports {target}"
        for name, tree in modules()
        for target in imported(tree)
        if target.split(".")[0] == "oncecron" and target not in known
    ]
    assert missing == []


def height(module: str) -> int:
    """Return which floor a module is on, 0 for the top."""
    return next(number for number, names in enumerate(FLOORS) if floor(module) in names)


def test_the_kernel_knows_no_wing_and_no_wing_another() -> None:
    """A module knows nothing of the floors above its own, and a wing nothing of the one beside it."""
    strays = {
        f"{name} imports {target}"
        for name, tree in modules()
        for target in (imported_to_run(tree) if name == MEETING else imported(tree))
        if target.split(".")[0] == "oncecron"
        and floor(target)
        and floor(name)
        and floor(target) != floor(name)
        and height(target) <= height(name)
    }
    assert strays == set()


def test_only_its_own_commands_know_a_plugin() -> None:
    """Nothing imports a module `plugin`: who asks finds it by its name. And it knows no other wing."""
    plugins = {name for name, _ in modules() if is_plugin(name)}
    assert plugins
    strays = {
        f"{name} imports {target}"
        for name, tree in modules()
        for target in imported(tree)
        if target in plugins
        or (name in plugins and floor(target) in WINGS and floor(target) != name.split(".")[1])
    }
    assert strays == set()


@pytest.mark.parametrize(
    ("folder", "made", "named"),
    [
        ("postgres/sql", r"^create \w+ \{ns\}\.(\w+)", r"\{{ns\}}\.{}\b"),
        ("sqlite/sql", r"^CREATE TABLE (\w+)", r"\b{}\b"),
        ("redis/lua", r"^local function (\w+)", r"\b{}\("),
    ],
)
def test_the_files_of_a_store_know_no_wing(folder: str, made: str, named: str) -> None:
    """What a wing brings stands in a folder of its own, and can be deleted with it."""
    place = PACKAGE / "stores" / folder
    kernel = "\n".join(path.read_text() for path in sorted(place.glob("*.*")))
    wings = "\n".join(path.read_text() for path in sorted(place.glob("items/*.*")))
    names = re.findall(made, wings, re.MULTILINE)
    assert bool(names) == bool(wings)
    assert [name for name in names if re.search(named.format(name), kernel)] == []


def test_stores_know_nothing_of_each_other() -> None:
    """Each store stands by itself on what all share."""
    strays = [
        f"{name} imports {target}"
        for name, tree in modules()
        for target in imported(tree)
        if store(name) and store(target) and store(name) != store(target)
    ]
    assert strays == []


def test_nothing_of_ours_imports_asyncio_or_a_driver_of_another_store() -> None:
    """Each driver belongs to its store's package; asyncio to nobody."""
    owners = {"psycopg": "postgres", "sqlite3": "sqlite", "redis": "redis"}
    strays = [
        f"{name} imports {target}"
        for name, tree in modules()
        for target in imported(tree)
        if target.split(".")[0] == "asyncio"
        or owners.get(target.split(".")[0], store(name)) != store(name)
    ]
    assert strays == []


def test_click_is_known_to_the_command_line_alone() -> None:
    """Click lives on the top floor only."""
    strays = [
        name
        for name, tree in modules()
        if "click" in {target.split(".")[0] for target in imported(tree)} and floor(name) != "cli"
    ]
    assert strays == []


SIMULATED = (
    "claimer",
    "events",
    "firing_states",
    "guard",
    "job",
    "reporter",
    "store_thread",
    "wrapper",
)
"""What of `run` the simulator runs without an exception."""


def test_what_is_simulated_makes_its_calls_of_the_system_in_one_place() -> None:
    """By `core.system`: a call beside it would ask this host, and two runs of a seed would differ."""
    known = {name for name in vars(system.Calls) if not name.startswith("_")} | {
        "monotonic",
        "sleep",
    }
    strays = [
        f"{name}: {ast.unparse(node)}"
        for name, tree in modules()
        if name in {f"oncecron.run.{each}" for each in SIMULATED} | {"oncecron.core.retry"}
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in known
        if isinstance(node.value, ast.Name) and node.value.id in ("os", "select", "time", "signal")
    ]
    assert strays == []


def imported_to_run(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports when it is imported itself: at the top, and not for types."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_what_a_firing_imports_has_typing_for_the_checker_alone() -> None:
    """`core.light_typing` stands for it; only contracts, which no firing imports, have the real one."""
    strays = [
        name
        for name, tree in modules()
        if floor(name) in LIGHT_FLOORS and "typing" in imported_to_run(tree)
    ]
    assert strays == ["oncecron.run.seams", "oncecron.stores.api", "oncecron_drill.stores"]


def test_a_module_says_its_one_job_and_stays_readable() -> None:
    """Under 600 lines, with a docstring."""
    assert [name for name, tree in modules() if not ast.get_docstring(tree)] == []
    lines = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert [path for path, count in lines.items() if count > 600] == []


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after some code, beside those of a bare one."""
    return _modules_after(code) - _modules_after("pass")


@functools.cache
def _modules_after(code: str) -> set[str]:
    code += "\nimport sys; print(' '.join(sys.modules))"
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


FIRING = "import oncecron.__main__, oncecron.config.run_parser, oncecron.run.firing, oncecron.stores.{}.lease_store"
HEAVY = {
    *("typing", "re", "click", "rich", "asyncio", "json", "cronsim", "zoneinfo", "tomllib", "inspect"),
    *("dataclasses", "pathlib", "logging", "subprocess", "uuid", "random", "urllib", "hashlib"),
    *("ssl", "socket", "selectors", "encodings.idna", "psycopg", "redis"),
    *("enum", "signal", "threading", "warnings", "contextlib", "ctypes", "types", "zlib"),
}  # fmt: skip
"""What no firing imports: redis-py costs 94 ms, psycopg 102, click 22, `typing` with `re` 5, `ctypes` 2, `zlib` 0.4."""


NEEDED = {
    # `_ctypes` lays structures out by `ctypes` since 3.14.
    "postgres": {"ctypes", "threading", "types", "warnings"}
    if sys.version_info >= (3, 14)
    else set(),
    "redis": set(),
    "sqlite": set(),
}
"""What a store cannot do without."""
MOST_MODULES = 52


@pytest.mark.parametrize("name", NEEDED)
def test_a_firing_imports_nothing_heavy(name: str) -> None:
    """Each import is paid on every host at every tick, and so is each module of our own."""
    loaded = loaded_by(FIRING.format(name))
    assert loaded & (HEAVY | {"sqlite3"}) <= NEEDED[name]
    ours = {module for module in loaded if module.split(".")[0] == "oncecron"}
    assert len(ours) <= MOST_MODULES, sorted(ours)


def test_only_pages_need_what_they_are_made_with() -> None:
    """No command imports a template or a server before it is used, and none but those that draw or serve at all."""
    every = "import sys; sys.path.insert(0, 'tests'); from command_tree import every_command; list(every_command())"
    assert not loaded_by(every) & {"jinja2", "markupsafe", "waitress", "oncecron_web.render"}
    users = {
        name for name, tree in modules() for target in imported(tree)
        if target.split(".")[0] in ("jinja2", "waitress") or target == "oncecron_web.render"
    }  # fmt: skip
    assert users <= {name for name in users if floor(name) == "pages"} | {
        "oncecron_web.cli.listening", "oncecron_web.cli.report", "oncecron_web.cli.web", "oncecron_drill.page",
    }  # fmt: skip


def test_a_schedule_needs_no_calendar() -> None:
    """A firing with `--schedule` and `--tz` pays less than a millisecond for them."""
    code = "from oncecron.core.tick import scheduled_tick; scheduled_tick('0 2 * * 1-5', 'Europe/Berlin', 1e9)"
    assert not loaded_by(code) & (HEAVY | {"datetime", "calendar"})


def test_the_shell_of_a_crontab_costs_what_run_costs() -> None:
    """Beside what `run` imports, only the rules of the key and of guards; and no click."""
    code = "import oncecron_crontab.shell, oncecron.run.firing, oncecron.core.derived_key"
    more = loaded_by(code) - loaded_by("import oncecron.run.firing")
    assert more == {
        *("oncecron.cli", "oncecron_crontab.shell", "oncecron.config.run_parser"),
        *("oncecron_crontab", "oncecron_crontab.guards", "oncecron.core.derived_key"),
        *("oncecron.core.shell_words", "binascii", "itertools"),
    }


def constants(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the values of a module's constants, the defaults of its classes' fields and of its parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
                    yield statement.value
        elif isinstance(node, ast.arguments):
            yield from (value for value in (*node.defaults, *node.kw_defaults) if value)


def is_time(value: ast.expr) -> bool:
    """Return whether a constant looks like one: not whole, or whole hours, up to ten years."""
    return any(
        (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int | float)
            and 0 < node.value <= LONGEST_DURATION
            and (isinstance(node.value, float) or node.value % 3600 == 0)
        )
        or (isinstance(node, ast.Name) and node.id == "DAY")
        for node in ast.walk(value)
    )


def test_every_time_is_in_one_place_with_its_reason() -> None:
    """Waits and limits are in `core.timing`; the option table has the smallest values that a user may set.

    How long the jobs and faults of the drill last is their own business, and no firing pays for it.
    """
    strays = [
        f"{name}: {ast.unparse(value)}"
        for name, tree in modules()
        if name not in {"oncecron.core.timing", "oncecron.core.units", "oncecron.config.options"}
        if floor(name) != "drill"
        for value in constants(tree)
        if is_time(value)
    ]
    assert strays == []
