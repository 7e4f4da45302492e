"""The pages of `oncecron web`, served by this process."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from waitress import create_server

from oncecron.cli.web import application

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def served(**given: str) -> Iterator[str]:
    """Serve pages; give their address."""
    server = create_server(application(**given), host="127.0.0.1", port=0)
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        server.close()
