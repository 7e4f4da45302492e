"""One service: its pings in order, each with two tries, in a thread of its own."""

from __future__ import annotations

import syslog
import time
from queue import SimpleQueue
from threading import Thread

from oncecron.alerts.http_request import RequestError, send
from oncecron.alerts.ping_services import BODY_LIMIT, request_for
from oncecron.core import stderr
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import PING_PAUSE, PING_TIMEOUT

if TYPE_CHECKING:
    from typing import Any

    from oncecron.alerts.ping_services import PingKind
    from oncecron.config.pings import Ping

_TRIES = 2


class Channel:
    """The pings to one service."""

    def __init__(self, ping: Ping, key: str, *, verbose: int) -> None:
        self._ping = ping
        self._key = key
        self._verbose = verbose
        self._body_limit = BODY_LIMIT
        self._waiting: SimpleQueue[tuple[PingKind, dict[str, Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, kind: PingKind, record: dict[str, Any]) -> None:
        """Send a ping after those before it."""
        self._waiting.put((kind, record))

    def finish(self) -> None:
        """Wait until every ping has been sent or given up."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            kind, record = waiting
            try:
                self._try(kind, record)
            except Exception as error:  # noqa: BLE001 - a bug here must not keep the next ping back
                self._report(kind, type(error).__name__)  # its text may hold the URL

    def _try(self, kind: PingKind, record: dict[str, Any]) -> None:
        """Send one ping. A start is not tried again when the end is waiting behind it."""
        url = self._ping.url_of(self._key, record["shard"])
        for tries_left in reversed(range(_TRIES)):
            request = request_for(self._ping.service, url, kind, record, self._body_limit)
            try:
                headers = send(request, PING_TIMEOUT)
            except RequestError as error:
                if tries_left and error.again and (kind == "end" or self._waiting.empty()):
                    time.sleep(PING_PAUSE)
                    continue
                self._report(kind, str(error))
                return
            limit = headers.get("Ping-Body-Limit", "")
            if limit.isdecimal():
                self._body_limit = int(limit)
            return

    def _report(self, kind: PingKind, why: str) -> None:
        """Report a ping that failed where it is no mail: cron must not send one for each."""
        text = f"key {self._key}: the {kind} ping to {self._ping.shown} failed: {why}"
        syslog.openlog("oncecron", syslog.LOG_PID, syslog.LOG_CRON)
        syslog.syslog(syslog.LOG_WARNING, stderr.visible(text))
        if self._verbose:
            stderr.complain(text)
