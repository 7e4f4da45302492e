"""Import the modules of oncecron in a quarter of the system calls, from the bytecode that Python itself keeps.

A firing imports some fifty modules, on every host at every tick. For each of them Python's own finder asks for the
times of directories, looks for extension modules, opens the bytecode as a buffered file, and so on: 11 to 16 system
calls. This one knows where a module is. It opens, reads and closes the bytecode, and asks for the time and the size of
the source. Without it, a winning firing costs 5 to 7 % more CPU on each store (120 pairs).

The bytecode counts on the same conditions as for Python (PEP 3147 and PEP 552: the magic number, and the time and the
size of the source). All that is unusual is left to Python: no bytecode, another or an old one, one with a hash, `-O`,
PYTHONPYCACHEPREFIX, a zip file, and a Python whose importlib has other insides.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False
"""As in `typing`. Nothing of ours is imported here, so that all but this and the entry point is found this way."""

try:
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
except ImportError:
    IS_KNOWN = False
    SourceFileLoader = object  # type: ignore[assignment, misc]
else:
    IS_KNOWN = True

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

_NAME = "oncecron"
"""How the names of the package and of each plugin begin."""
_SUFFIX = f".{sys.implementation.cache_tag}.pyc"
_HEADER = 16
_FLAGS_OF_A_TIME = bytes(4)
_LONGEST = 1 << 16
"""Of a file with bytecode, in bytes; ours have at most 40,000. For a larger buffer malloc(3) would map new pages."""


def install() -> None:
    """Find the modules within the package and within plugins this way first."""
    usual = not sys.flags.optimize and sys.pycache_prefix is None
    if IS_KNOWN and usual and sys.implementation.cache_tag:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is and its code; None for Python to find it."""
        del target
        if path is None or not name.startswith(_NAME):
            return None
        [directory, *_] = path
        leaf = name.rpartition(".")[2]
        try:
            return _spec(name, directory, leaf) or _spec(name, f"{directory}/{leaf}", "__init__")
        except Exception:  # noqa: BLE001 - of a Python that is not known yet: its own way is always right
            return None


def _spec(name: str, directory: str, leaf: str) -> ModuleSpec | None:
    source = f"{directory}/{leaf}.py"
    cached = f"{directory}/__pycache__/{leaf}{_SUFFIX}"
    code = _code(source, cached)
    if code is None:
        return None
    spec = ModuleSpec(name, _Loader(name, source, code), origin=source)
    if leaf == "__init__":
        spec.submodule_search_locations = [directory]
    spec.has_location = True
    spec.cached = cached
    return spec


def _code(source: str, cached: str) -> CodeType | None:
    try:
        descriptor = os.open(cached, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, _LONGEST)
        finally:
            os.close(descriptor)
        status = os.stat(source)
    except OSError:
        return None
    changed = int(status.st_mtime) & 0xFFFF_FFFF | (status.st_size & 0xFFFF_FFFF) << 32
    belongs = MAGIC_NUMBER + _FLAGS_OF_A_TIME + changed.to_bytes(8, "little")
    if data[:_HEADER] != belongs or len(data) == _LONGEST:
        return None
    code: CodeType = marshal.loads(memoryview(data)[_HEADER:])  # noqa: S302 - what Python itself would load
    return code


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        self.name, self.path, self._code = name, path, code

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module."""
        del fullname
        return self._code
