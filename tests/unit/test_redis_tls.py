"""What TLS does with its sockets."""

import gc
import select
import socket
import struct
import warnings

import pytest

from oncecron.stores.redis.address import Tls
from oncecron.stores.redis.tls import context, wrapped

UNVERIFIED = Tls(None, None, None, None, verify=False, check_hostname=False)
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def test_a_reset_before_the_handshake_leaves_no_socket() -> None:
    """The descriptor is given back, not left to the collector, which a firing has switched off."""
    made = context(UNVERIFIED, "the server")
    raw = _reset_by_its_peer()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(OSError):  # noqa: PT011 - which one is the kernel's choice
            wrapped(made, raw, "localhost")
        gc.collect()
    assert raw.fileno() == -1, "nobody took the socket over: this proves nothing"
    assert [str(warning.message) for warning in told] == []


def _reset_by_its_peer() -> socket.socket:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        raw = socket.create_connection(listening.getsockname())
        peer, _ = listening.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    peer.close()
    waiting = select.poll()
    waiting.register(raw, select.POLLIN)
    assert waiting.poll(5000)
    return raw
