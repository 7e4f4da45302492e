"""The direction of imports, and what a firing may import at all."""

import ast
import functools
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

import oncecron
from oncecron.core import system
from oncecron.core.units import LONGEST_DURATION

PACKAGE = Path(oncecron.__file__).parent

PACKAGES = [
    PACKAGE,
    *(init.parent for init in sorted(PACKAGE.parent.glob("oncecron_*/__init__.py"))),
]
"""The core, and the plugins that stand on it."""

FLOORS = (
    *("__main__", "cli", "watch", "log", "plugins", "run", "config", "stores", "host", "core"),
    "light_imports",
)
"""The packages of the core from the top floor down: a module imports only from its own floor and from those below."""

PAGE = Path(__file__).parents[2] / "docs" / "design" / "architecture.md"
EXAMPLE = PAGE.parent / "example_plugin" / "oncecron_disk.py"

MEETING = "oncecron.plugins"
"""What a plugin may bring. It names for types what stands above it, and imports nothing of that."""

CIRCLES = {
    "oncecron.config.file oncecron.config.file_reader oncecron.config.ping_table": "who has no file loads no reader",
    "oncecron.run.process_tree oncecron.run.sandbox": "after a failure, each call is tried by itself",
    "oncecron.run.seams oncecron.run.spec": "a spec carries a body, which begins with the spec; for types alone",
    "oncecron.run.firing_states oncecron.run.guard": "a state moves the guard, which is in a state; for types alone",
    "oncecron.cli.command oncecron.cli.completion": "each command is asked at a TAB, and asks the store for names",
    "oncecron.log.audit oncecron.log.gaps oncecron.log.sources oncecron.plugins oncecron.watch.findings":
        "what a plugin may bring is of types that stand above what asks for it",
    "oncecron_each.loader oncecron_each.runner oncecron_each.spec oncecron_each.worker":
        "a body names what runs in the place of the command, which reads the body",
}  # fmt: skip
"""The circles of modules, of imports in functions and for types, too; and why each is one. It only becomes shorter."""

SAME_NAME = {
    "oncecron.cli.doctor oncecron.stores.postgres.doctor oncecron.stores.redis.doctor": "of a host, and of a server",
    "oncecron.cli.history oncecron_drill.history": "the words of a log, and of what a checker reads",
    "oncecron.config.options oncecron_each.options": "the table of the options of `run`, and of `each`",
    "oncecron.run.spec oncecron_each.spec": "what is decided before a process starts, of `run` and of `each`",
}
"""The modules that have one name by intent, and why."""

OF_PLUGINS = ("plugin", "cli", "redis_views", "sqlite_views", "__main__")
"""The modules that a plugin has by contract, where it has them."""

STORES = ("postgres", "redis", "sqlite")
LIGHT_FLOORS = ("core", "host", "config", "run", "stores")
"""What a firing imports: `typing` for the type checker alone."""


def floor(module: str) -> str:
    """Return the floor of the core that a module is on, none for the package itself; or else the plugin."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] if package == "oncecron" else package


def store(module: str) -> str | None:
    """Return the store that a module belongs to, if it belongs to one."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["stores"] and parts[2:3] and parts[2] in STORES else None


@functools.cache
def modules() -> list[tuple[str, ast.Module]]:
    """Return every module of the core and of the plugins, parsed."""
    return [(name_of(path), ast.parse(path.read_text())) for path in paths()]


def paths() -> list[Path]:
    return [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]


@functools.cache
def names() -> frozenset[str]:
    return frozenset(map(name_of, paths()))


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
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            if node.module == "oncecron":
                yield from inner - {"oncecron.__version__"}
            else:
                yield from inner & names() or {node.module}


def test_each_module_is_on_a_floor() -> None:
    """A new package or module at the top has to say where it stands."""
    assert {floor(name) for name in names()} == {*FLOORS, "", *(each.name for each in PACKAGES[1:])}


def test_what_is_imported_is_there() -> None:
    """Also where a function imports it, which only some command or fault would show."""
    missing = [
        f"{name} imports {target}"
        for name, tree in modules()
        for target in imported(tree)
        if target.startswith("oncecron") and target not in names()
    ]
    assert missing == []


def test_a_floor_of_the_core_knows_nothing_of_those_above() -> None:
    """A module imports from its own floor and from those below, also in functions and for types."""
    strays = {
        f"{name} imports {target}"
        for name, tree in modules()
        for target in (imported_to_run(tree) if name == MEETING else imported(tree))
        if floor(name) in FLOORS and floor(target) in FLOORS
        if FLOORS.index(floor(target)) < FLOORS.index(floor(name))
    }
    assert strays == set()


def test_the_core_knows_no_plugin_and_no_plugin_another() -> None:
    """Each can be read, changed and thrown away alone: also where a function imports, or for types."""
    strays = [
        f"{name} imports {target}"
        for name, tree in modules()
        for target in imported(tree)
        if target.startswith("oncecron_") and floor(target) != floor(name)
    ]
    assert strays == []


@functools.cache
def public() -> frozenset[str]:
    """Return the modules of the core that the page lists as public, and their packages."""
    table = PAGE.read_text().partition("### What a plugin may import\n")[2].partition("\n#")[0]
    found = {"oncecron"}
    for package, listed in re.findall(r"^\| `(\S+)` \| (.*?) \|", table, re.MULTILINE):
        place = package if package == "oncecron" else f"oncecron.{package}"
        all_of = {name for name in names() if name.startswith(f"{place}.")}
        named = {f"{place}.{name}" for name in re.findall(r"`(\S+?)`", listed)}
        found |= {place, *(all_of if listed == "all" else named)}
    return frozenset(found)


def test_the_public_modules_of_the_core_are_there() -> None:
    """The page lists them, and no other place."""
    assert len(public()) > 20
    assert sorted(public() - names()) == []


def test_a_plugin_imports_public_modules_of_the_core_alone() -> None:
    """For types, too; so does the example."""
    strays = {
        f"{name} imports {target}"
        for name, tree in [*modules(), ("example", ast.parse(EXAMPLE.read_text()))]
        for target in imported(tree)
        if name.partition(".")[0] != "oncecron" and target.partition(".")[0] == "oncecron"
        if target not in public()
    }
    assert sorted(strays) == []


NOUNS = re.compile(
    r"(?<![a-z])(item|notice|channel|page|violation)s?(?![a-z])", re.IGNORECASE
)  # fmt: skip
INNOCENT = {
    "oncecron.run.job page": "of memory",
    "oncecron.core.masking channel": "an option of libpq",
    "oncecron.config.file_reader channel": "a table that a person may write at the top, where nobody reads it",
    "oncecron.config.file_reader page": "likewise",
    "oncecron.config.options item": "in the name of a variable that a firing must know, and that it asks no plugin for",
    "oncecron.config.options channel": "likewise",
}
"""Where a noun means something else than a plugin's."""


def test_the_core_does_not_speak_of_what_is_a_plugins() -> None:
    """Neither names nor texts nor comments of its lower floors; but for `items()` of a mapping."""
    found = {
        f"{name_of(path)} {noun.lower()}"
        for path in paths()
        if floor(name_of(path)) in ("core", "config", "run")
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type not in (tokenize.NL, tokenize.OP, tokenize.NUMBER) and token.string != "items"
        for noun in NOUNS.findall(token.string.replace("_", " "))
    }
    assert sorted(found - INNOCENT.keys()) == []
    assert sorted(INNOCENT.keys() - found) == []


def test_nothing_imports_what_a_plugin_brings() -> None:
    """Who asks a plugin finds it by its name."""
    brought = {name for name in names() if name.endswith(".plugin")}
    assert brought
    assert [name for name, tree in modules() if brought & set(imported(tree))] == []


@pytest.mark.parametrize(
    ("folder", "made", "named"),
    [
        ("postgres/sql", r"^create \w+ \{ns\}\.(\w+)", r"\{{ns\}}\.{}\b"),
        ("sqlite/sql", r"^CREATE TABLE (\w+)", r"\b{}\b"),
        ("redis/lua", r"^local function (\w+)", r"\b{}\("),
    ],
)
def test_the_files_of_a_store_know_no_plugin(folder: str, made: str, named: str) -> None:
    """What a plugin brings stands in a folder of its own, and can be deleted with it."""
    place = PACKAGE / "stores" / folder
    core = "\n".join(path.read_text() for path in sorted(place.glob("*.*")))
    brought = "\n".join(path.read_text() for path in sorted(place.glob("*/*.*")))
    found = re.findall(made, brought, re.MULTILINE)
    assert bool(found) == bool(brought)
    assert [name for name in found if re.search(named.format(name), core)] == []


def within_reach(start: str, imports: dict[str, set[str]]) -> set[str]:
    """Return the modules that a module imports, and those that these import, and so on."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_modules_import_each_other_in_no_circle() -> None:
    """A package is read from below. A circle that is no more has to go from the list."""
    imports = {name: {*imported(tree)} & names() - {name} for name, tree in modules()}
    reach = {name: within_reach(name, imports) for name in imports}
    circles = {
        " ".join(sorted(other for other in reached if name in reach[other]))
        for name, reached in reach.items()
        if name in reached
    }
    assert sorted(circles - CIRCLES.keys()) == []
    assert sorted(of_what_is_here(CIRCLES) - circles) == []


def of_what_is_here(table: dict[str, str]) -> set[str]:
    """Return the entries of a table none of whose plugins was thrown away."""
    here = {package.name for package in PACKAGES}
    return {each for each in table if {name.partition(".")[0] for name in each.split()} <= here}


def shared_place(name: str) -> str:
    """Return where a module has to differ in its name from others.

    A command has the name of what it asks, in `log` or in its plugin. The packages of stores have the same files.
    """
    package, _, last = name.rpartition(".")
    if package == "oncecron.cli" and f"oncecron.log.{last}" in names():
        return "oncecron.log"
    if package.startswith("oncecron.stores"):
        return "oncecron.stores"
    return package.removesuffix(".cli") if package.startswith("oncecron_") else package


def test_the_name_of_a_module_stands_once() -> None:
    """Who searches by a name finds what it says."""
    found: dict[str, set[str]] = {}
    for name in (name_of(path) for path in paths() if path.stem != "__init__"):
        found.setdefault(name.rpartition(".")[2], set()).add(name)
    twice = {
        " ".join(sorted(same))
        for last, same in found.items()
        if last not in OF_PLUGINS and len({*map(shared_place, same)}) > 1
    }
    assert sorted(twice - SAME_NAME.keys()) == []
    assert sorted(of_what_is_here(SAME_NAME) - twice) == []


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
    """Click lives in `cli` only, of the core and of each plugin."""
    strays = [
        name
        for name, tree in modules()
        if "click" in {target.split(".")[0] for target in imported(tree)}
        if name.split(".")[1:2] != ["cli"]
    ]
    assert strays == []


SIMULATED = (
    *("claimer", "events", "firing_states", "guard", "job", "reporter", "store_thread"),
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


def test_core_asks_the_host_for_its_clocks_alone() -> None:
    """Files, variables and terminals are asked for in `host`; what a firing needs to start at all is left."""
    asking = {
        f"oncecron.core.{name}" for name in ("clock", "system", "light_imports", "light_modules")
    }
    strays = [
        f"{name}: {ast.unparse(node)}"
        for name, tree in modules()
        if floor(name) == "core" and name not in asking
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os"
        if node.attr not in ("fsencode", "strerror")
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
    assert strays == ["oncecron.run.seams", "oncecron.stores.api"]


def test_a_module_says_its_one_job() -> None:
    """In its docstring."""
    assert [name for name, tree in modules() if not ast.get_docstring(tree)] == []


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


@pytest.mark.parametrize("name", NEEDED)
def test_a_firing_imports_nothing_heavy(name: str) -> None:
    """Each import is paid on every host at every tick."""
    assert loaded_by(FIRING.format(name)) & (HEAVY | {"sqlite3"}) <= NEEDED[name]


def test_each_asks_no_package_what_it_brings() -> None:
    """It is found by its name, as every command of ours: no list of what is installed is read, and no plugin asked."""
    pytest.importorskip("oncecron_each")
    code = "from oncecron.cli.main import invoke; invoke(['each', '--help'])"
    loaded = loaded_by(f"import os; out = os.dup(1); os.dup2(2, 1); {code}; os.dup2(out, 1)")
    assert "oncecron_each.cli.each" in loaded
    assert not loaded & {"importlib.metadata", "oncecron.plugins", "oncecron.host.installation"}


def test_only_who_draws_pages_needs_what_they_are_made_with() -> None:
    """No command imports a template or a server before it is used, and none but those that draw or serve at all."""
    every = "import sys; sys.path.insert(0, 'tests'); from command_tree import every_command; list(every_command())"
    assert not loaded_by(every) & {"jinja2", "markupsafe", "waitress", "oncecron_web.render"}
    users = {
        floor(name) for name, tree in modules() for target in imported(tree)
        if target.split(".")[0] in ("jinja2", "waitress")
    }  # fmt: skip
    assert users <= {"oncecron_web"}


def test_a_schedule_needs_no_calendar() -> None:
    """A firing with `--schedule` and `--tz` pays less than a millisecond for them."""
    code = "from oncecron.host.local_time import scheduled_tick; scheduled_tick('0 2 * * 1-5', 'Europe/Berlin', 1e9)"
    assert not loaded_by(code) & (HEAVY | {"datetime", "calendar"})


def test_the_shell_of_a_crontab_costs_what_run_costs() -> None:
    """Beside what `run` imports, only the rules of the key and of guards; and no click."""
    pytest.importorskip("oncecron_crontab")
    code = "import oncecron_crontab.shell, oncecron.run.firing, oncecron.core.derived_key"
    more = loaded_by(code) - loaded_by("import oncecron.run.firing")
    assert more == {
        *("oncecron_crontab", "oncecron_crontab.shell", "oncecron_crontab.guards"),
        *("oncecron.config.run_parser", "oncecron.core.derived_key"),
        *("oncecron.core.shell_words", "binascii", "itertools"),
    }


def unexplained(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the values of a module's constants, and the defaults of its classes' fields, that no text follows.

    And the defaults of parameters, which none can follow.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement, after in zip_longest(node.body, node.body[1:]):
                explained = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                if (
                    isinstance(statement, ast.Assign | ast.AnnAssign)
                    and statement.value
                    and not explained
                ):
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


def test_every_time_has_its_reason() -> None:
    """A text follows each wait and each limit, in `core.timing` and wherever else one stands.

    The option table has the smallest values that a user may set.

    How long the jobs and faults of the drill last is their own business, and no firing pays for it.
    """
    strays = [
        f"{name}: {ast.unparse(value)}"
        for name, tree in modules()
        if name not in {"oncecron.core.units", "oncecron.config.options"}
        if floor(name) != "oncecron_drill"
        for value in unexplained(tree)
        if is_time(value)
    ]
    assert strays == []
