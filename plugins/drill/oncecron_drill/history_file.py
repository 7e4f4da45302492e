"""The file of `--json`: the certificate of a drill, and the whole history that it was judged by.

One JSON object: `format`, `version`, `certificate`, `history`. A history has the fields of `history.py`, each of its
type. The version rises when a field changes its meaning, or one is needed that a file may not have. Whoever judges a
file again believes the history alone, and nothing of it that is not of its type.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import stat
import types
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_origin, get_type_hints

from oncecron.core.errors import EX_DATAERR, UNREADABLE, InputError, reason_of
from oncecron_drill.assess import assess
from oncecron_drill.history import History
from oncecron_drill.rules.joined import option

if TYPE_CHECKING:
    from oncecron_drill.certificate import Certificate

FORMAT, VERSION = "oncecron drill", 1
LARGEST = 256 << 20
"""Bytes of a file that is judged: a drill of the default size writes about 1 MiB in two minutes."""
MOST_PARTS = 100_000
"""Parts of a key, and items of a list: rules count them one by one."""


def as_json(certificate: Certificate, history: History) -> str:
    """Return what the file has, with a newline."""
    values = {
        "format": FORMAT,
        "version": VERSION,
        "certificate": dataclasses.asdict(certificate),
        "history": dataclasses.asdict(history),
    }
    return json.dumps(values, indent=1) + "\n"


def judge(path: str) -> tuple[Certificate, History]:
    """Return the history of a file, and the certificate by the rules of this version. Raises `InputError`."""
    history = _history_of(path, _read(path))
    try:
        return assess(history), history
    except UNREADABLE as error:
        _refuse(path, f"its history: {reason_of(error)}", error)


def _read(path: str) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"cannot read {path}: it is not a regular file")
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
    if len(text) > LARGEST:
        _refuse(path, f"it is larger than {LARGEST >> 20} MiB")
    return text


def _history_of(path: str, text: bytes) -> History:
    if not text:
        _refuse(path, "it is empty")
    try:
        values = json.loads(text.decode(), parse_constant=_finite, parse_float=_finite)
    except json.JSONDecodeError as error:
        begun = error.doc.strip()
        is_cut = begun.startswith("{") and (
            error.pos >= len(error.doc.rstrip()) or begun[-1] != "}"
        )
        _refuse(path, "its end is missing" if is_cut else f"it is no JSON: {error}", error)
    except UNREADABLE as error:
        _refuse(path, reason_of(error), error)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        _refuse(path, "it was not written by `oncecron drill --json`")
    if values.get("version") != VERSION:
        known = f"this oncecron reads version {VERSION}; judge it by the version that wrote it"
        _refuse(path, f"it has version {values.get('version')!r} of the format, and {known}")
    try:
        history: History = _of(History, values.get("history"), "history")
        _check_parts(history)
    except UNREADABLE as error:
        _refuse(path, reason_of(error), error)
    return history


def _refuse(path: str, why: str, cause: BaseException | None = None) -> NoReturn:
    error = InputError(f"{path} cannot be judged: {why}")
    error.exit_status = EX_DATAERR
    raise error from cause


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of seconds")
    return number


# What has its type


def _of(kind: Any, value: Any, name: str) -> Any:
    """Return a value of JSON as a type of history.py. Raises `ValueError`, `RecursionError`."""
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, name)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is types.UnionType:  # with None
        return None if value is None else _of(inner[0], value, name)
    if origin in (list, tuple):
        return _row(origin, inner, value, name)
    if kind is float and type(value) is int:
        return float(value)
    if kind is not Any and type(value) is not (origin or kind):
        raise ValueError(f"{name} is not as oncecron writes it")
    return value


def _row(origin: Any, inner: tuple[Any, ...], value: Any, name: str) -> Any:
    kinds = inner if origin is tuple else inner * len(value) if isinstance(value, list) else ()
    if not isinstance(value, list) or len(kinds) != len(value):
        raise ValueError(f"{name} is no list of oncecron's")
    pairs = enumerate(zip(kinds, value, strict=True))
    return origin(_of(kind, each, f"{name}[{number}]") for number, (kind, each) in pairs)


def _record(kind: Any, value: Any, name: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(value, dict):
        raise ValueError(f"{name} is missing, or no object")  # noqa: TRY004 - a file is wrong, and no caller
    if unknown := sorted(value.keys() - fields.keys()):
        raise ValueError(f"{name} has a field that nobody knows: {unknown[0]!r}")
    for field in fields.values():
        is_needed = field.default is field.default_factory is dataclasses.MISSING
        if is_needed and field.name not in value:
            raise ValueError(f"{name}.{field.name} is missing")
    hints = get_type_hints(kind)
    return kind(**{field: _of(hints[field], value[field], f"{name}.{field}") for field in value})


def _check_parts(history: History) -> None:
    """Raise `ValueError` for more parts or items than a drill could fire."""
    numbers = [key.get("parts", 1) for key in history.head["keys"].values()]
    numbers += [*history.head["items"].values()]
    numbers += [option(firing, "--shards") or 1 for firing in history.firings]
    for number in numbers:
        if not 0 < int(number) <= MOST_PARTS:
            raise ValueError(f"a key has {number} parts or items, and {MOST_PARTS} is the most")
