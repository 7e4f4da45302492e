"""A file in place of memfd_create(2), imported only where that is refused."""

from __future__ import annotations

import os
import tempfile


def unnamed_file() -> int:
    """Return a descriptor of an empty file that nobody else can open. Raises `OSError`.

    Old profiles of containers refuse memfd_create(2), and vm.memfd_noexec=2 does unless a sealed file is asked for.
    """
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
