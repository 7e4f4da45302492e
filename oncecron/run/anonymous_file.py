"""Make a file without a name, in memory where the kernel allows it."""

from __future__ import annotations

import os


def anonymous_file(name: str) -> int:
    """Return a descriptor of an empty file that nobody else can open; `name` is for debuggers. Raises `OSError`.

    memfd_create(2) is refused by old profiles of containers, and with vm.memfd_noexec=2 to programs that do not ask for
    a sealed file.
    """
    try:
        return os.memfd_create(name)
    except OSError:
        import tempfile  # noqa: PLC0415 - almost never

        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
