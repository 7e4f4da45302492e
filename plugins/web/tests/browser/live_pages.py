"""The pages of `oncecron web`, served by this process."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from waitress import create_server, wasyncore

from oncecron_web.cli.web import application

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def served(**given: str) -> Iterator[str]:
    """Serve pages; give their address."""
    server = create_server(application(**given), host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        server.task_dispatcher.shutdown()  # a thread of it would write into what has its descriptor next
        server.trigger.pull_trigger(lambda: wasyncore.close_all(server._map))
        thread.join(30)
        assert not thread.is_alive()
