"""`oncecron drill`: the store put to the proof, with a certificate or the history that shows the hole."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from random import SystemRandom
from typing import TYPE_CHECKING, NoReturn, TextIO

from oncecron.cli import output, whole_file
from oncecron.cli.command import TableCommand
from oncecron.cli.progress_bar import progress_bar
from oncecron.config.options import CONFIG, NAMESPACE, STORE, Option
from oncecron.config.settings import Settings
from oncecron.core.errors import EX_CANTCREAT, EX_UNKNOWN, OutputError, UsageError
from oncecron.host.stderr import complain
from oncecron.stores import check_with_driver
from oncecron.stores.address import masked
from oncecron_drill.stores import open_drilled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.stores.address import Address
    from oncecron_drill.another_wrapper import Wrapper
    from oncecron_drill.certificate import Certificate
    from oncecron_drill.drill import Request
    from oncecron_drill.history import History

_SHORTEST_DRILL, _LONGEST_DRILL = 0.1, 1440
"""The bounds of `drill --minutes`."""
_MORE = 80
"""Seconds that a drill usually takes beside: its control, and after the last fault every key has to run once more."""

_PRINTED = "-"
_MOST_SEED = 1_000_000
_ENDINGS = {"clean": 0, "violated": 1, "nothing found": EX_UNKNOWN, "not judged": EX_UNKNOWN}

OPTIONS = (
    Option(
        "minutes", "text", "Strike for so many minutes, such as 2 or 0.5. Promote your standby or restart your pooler "
        "meanwhile: the certificate dates what it sees.", "N", "How much", "2",
    ),
    Option(
        "hosts", "integer", "Fire from so many hosts, each a process tree on this machine.", group="How much",
        default="5", minimum=2, maximum=20,
    ),
    Option(
        "keys", "integer", "Fire so many keys, each with a job of another kind.", group="How much", default="8",
        minimum=1, maximum=24,
    ),
    Option("seed", "integer", "Repeat the firings and faults of this seed.", group="How much", minimum=0),
    Option(
        "no-holes", "flag", "Leave out the faults under which oncecron promises nothing, such as the wrapper and the "
        "guard of a job stopped together.", group="How much",
    ),
    Option("yes", "flag", "Begin without asking. Needed without a terminal."),
    Option(
        "json", "text", "Also write the certificate, and the whole history, as JSON into this file. -: print that "
        "alone.", "FILE", "Output", completion="file",
    ),
    Option(
        "judge", "text", "Drill nothing: judge the history in this file of --json again, by the rules of this "
        "oncecron.", "FILE", "Output", completion="file",
    ),
    Option(
        "wrapper", "text", "Put another lock to the proof in place of oncecron: the command that takes it, with {key} "
        "and {command} in it, also {tick} and {proxy}. No shell runs it.", "COMMAND", "Where",
    ),
    Option(
        "proxy", "text", "Cut and slow the connections of --wrapper to this server: {proxy} in the command becomes the "
        "address of a proxy in front of it.", "HOST:PORT", "Where",
    ),
    STORE,
    NAMESPACE._replace(
        help="Use this namespace, which a DBA has prepared for one drill and will remove. Its name begins with "
        "oncecron_drill. Default: make one, and remove it.", default=None, environment=None, config="never",
        completion=(),
    ),
    CONFIG,
)  # fmt: skip


def _drill(given: dict[str, str], _words: list[str]) -> int:
    for name in ("json", "judge"):
        if given.get(name) == "":
            raise UsageError(f"--{name}: the name of the file is empty (an unset variable?)")
    if "judge" in given:
        return _judge(given)
    settings = Settings(_named(given), given)
    request = _request(settings)
    stream = output.standard_output()
    file = settings["json"]
    if file not in (None, _PRINTED):
        with _its_own_status():
            whole_file.rehearse(file)
    if not settings["yes"] and not _agreed(request):
        return 0

    from oncecron_drill.assess import assess  # noqa: PLC0415 - not for --help
    from oncecron_drill.drill import check_namespace, drill  # noqa: PLC0415
    from oncecron_drill.keeper import keeping  # noqa: PLC0415

    check_namespace(request.namespace)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with keeping(request.address, request.store) as ground, progress_bar("drill") as progress:
        total = round(request.minutes * 60)
        history = drill(
            request, ground, lambda passed, what: progress(min(round(passed), total), total, what)
        )
    return _tell(assess(history), history, file, stream)


def _judge(given: dict[str, str]) -> int:
    if others := [name for name in given if name not in ("judge", "json")]:
        raise UsageError(f"--judge drills nothing; leave --{others[0]} out")

    from oncecron_drill.history_file import judge  # noqa: PLC0415 - not for --help

    stream = output.standard_output()
    return _tell(*judge(given["judge"]), given.get("json"), stream)


def _tell(certificate: Certificate, history: History, file: str | None, stream: TextIO) -> int:
    from oncecron_drill.certificate import as_text  # noqa: PLC0415
    from oncecron_drill.history_file import as_json  # noqa: PLC0415

    if file == _PRINTED:
        output.write_text(as_json(certificate, history), stream)
    else:
        output.say(as_text(certificate), stream)
        if file is not None:
            with _its_own_status():
                whole_file.replace(file, as_json(certificate, history).encode())
    return _ENDINGS[certificate.verdict]


@contextlib.contextmanager
def _its_own_status() -> Iterator[None]:
    try:
        yield
    except OutputError as error:
        error.exit_status = EX_CANTCREAT
        raise


def _named(given: dict[str, str]) -> tuple[Option, ...]:
    return (
        OPTIONS
        if NAMESPACE.name in given
        else (*(o for o in OPTIONS if o.name != NAMESPACE.name), _UNUSED)
    )


_UNUSED = NAMESPACE._replace(default="oncecron_drill", environment=None, config="never")


def _request(settings: Settings) -> Request:
    from oncecron_drill.drill import Request  # noqa: PLC0415 - not for --help

    seed: int | None = settings["seed"]
    address, store, wrapper, server = _what_fires(settings)
    return Request(
        address,
        store,
        _minutes(settings["minutes"]),
        settings["hosts"],
        settings["keys"],
        SystemRandom().randrange(_MOST_SEED) if seed is None else seed,
        settings[NAMESPACE.name] if settings.is_typed(NAMESPACE.name) else None,
        outside=not settings["no-holes"],
        wrapper=wrapper,
        server=server,
    )


def _what_fires(
    settings: Settings,
) -> tuple[Address | None, str, Wrapper | None, tuple[str, int] | None]:
    """Return the address of the store; or None, and the other wrapper with the server of its lock."""
    typed: str | None = settings["wrapper"]
    text: str | None = settings["proxy"]
    if typed is None and text is not None:
        raise UsageError(
            "--proxy is of --wrapper; in front of a store there are proxies without it"
        )
    if typed is None:
        address = settings.address()
        check_with_driver(address)
        open_drilled(address, settings[NAMESPACE.name])  # which checks the name
        return address, masked(address.target), None, None
    if of_store := [each for each in (STORE, NAMESPACE) if settings.is_typed(each.name)]:
        raise UsageError(f"--{of_store[0].name} is of oncecron; --wrapper finds its server itself")

    from oncecron_drill.another_wrapper import parse  # noqa: PLC0415 - not for --help
    from oncecron_drill.stores.another import parse_server  # noqa: PLC0415

    server = None if text is None else parse_server(text)
    wrapper = parse(typed, is_proxied=server is not None)
    return None, wrapper.shown, wrapper, server


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not _SHORTEST_DRILL <= minutes <= _LONGEST_DRILL:
        raise UsageError(
            f"--minutes: {text!r} is not a number from {_SHORTEST_DRILL:g} to {_LONGEST_DRILL:g}"
        )
    return minutes


def _agreed(request: Request) -> bool:
    """Say what the drill is about to do, and ask. Raises `UsageError` where nobody can be asked."""
    by = f"by `{request.store}`" if request.wrapper else f"into {request.store}"
    where = "" if request.wrapper else ", in a namespace of its own"
    plan = (
        f"{request.hosts} hosts on this machine fire {request.firings_a_second:.1f} times a second {by} for "
        f"{request.minutes:g} minutes and about {_MORE} s more{where}"
    )
    if not (sys.stdin and sys.stdin.isatty() and os.isatty(2)):
        raise UsageError(f"no terminal to ask at: {plan}; add --yes to begin")
    complain(plan)
    sys.stderr.write("Begin? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


COMMAND = TableCommand(
    "drill", OPTIONS, _drill,
    about="Put your own store to the proof. Hosts on this machine fire jobs into a namespace of their own while "
    "processes are killed and stopped, connections are cut and slowed, clocks are wrong and a disk is full. Then the "
    "jobs' own ledger is judged: was anything started twice, or two at a time, or not at all, or without a record? "
    "The result is a certificate, or the history that shows the hole. Exit status: 0 clean, 1 violated, 3 if too few "
    "faults found nothing, or it could not judge.",
    examples=(
        "oncecron drill",
        "oncecron drill --store local",
        "oncecron drill --minutes 30 --json drill.json",
        "oncecron drill --judge drill.json",
        "oncecron drill --store redis://redis.example.com --yes",
        "oncecron drill --wrapper 'flock -n /tmp/{key} {command}'",
    ),
)  # fmt: skip
