"""TLS to a Redis server: imported only where the address asks for it (ssl costs a firing 10 ms)."""

from __future__ import annotations

import os
import ssl

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    import _socket

    from oncecron.core.errors import StoreError
    from oncecron.stores.redis.address import Tls


class _Socket(ssl.SSLSocket):
    """A socket that closes itself: CPython leaks one that its peer resets between connect and handshake."""

    def __del__(self) -> None:
        self.close()


# Failures that no retry can fix, by the words in OpenSSL's reason, with their cures.
_PERMANENT = (
    (
        "CERTIFICATE_REQUIRED",
        "the server requires a client certificate; set ssl_certfile and ssl_keyfile",
    ),
    ("UNKNOWN_CA", "the server does not trust the CA that signed ssl_certfile"),
    ("CERTIFICATE", "the server does not accept the certificate in ssl_certfile"),
    (
        "WRONG_VERSION_NUMBER",
        "the server does not use TLS on this port; write redis://, or use its TLS port",
    ),
    ("HANDSHAKE_FAILURE", "the server and this host have no cipher in common"),
    ("PROTOCOL_VERSION", "the server and this host have no version of TLS in common"),
    ("UNSUPPORTED_PROTOCOL", "the server and this host have no version of TLS in common"),
)

_MISMATCHES = (62, 63, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH, of an address of mail, and of an IP address (X509_verify_cert_error_string(3))."""


def context(tls: Tls, where: str) -> ssl.SSLContext:
    """Return a context with the files of the address. Raises `StoreRefusesError` with the file."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.sslsocket_class = _Socket
    if not tls.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    else:
        made.check_hostname = tls.check_hostname
        _load_authorities(made, tls.ca_certs, where)
    if tls.certfile:
        try:  # without a password OpenSSL would ask for one on the terminal
            made.load_cert_chain(tls.certfile, tls.keyfile, tls.keyfile_password or "")
        except OSError as error:
            _refuse_unreadable(tls, where)
            raise StoreRefusesError(
                f"{where}: ssl_certfile {tls.certfile} and its key cannot be used: {_reason(error)}; "
                "check ssl_certfile, ssl_keyfile and ssl_keyfile_password"
            ) from error
    return made


def _refuse_unreadable(tls: Tls, where: str) -> None:
    """Raise `StoreRefusesError` with the file that cannot be read: OpenSSL does not say which of the two it is."""
    for name, path in (("ssl_certfile", tls.certfile), ("ssl_keyfile", tls.keyfile)):
        try:
            os.close(os.open(path or os.devnull, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            raise StoreRefusesError(
                f"{where}: {name} {path} cannot be read: {error.strerror}; user {os.geteuid()} must be able to read it"
            ) from error


def _load_authorities(made: ssl.SSLContext, path: str | None, where: str) -> None:
    if path is None:
        made.load_default_certs()
        return
    try:
        made.load_verify_locations(path)
    except OSError as error:
        raise StoreRefusesError(
            f"{where}: ssl_ca_certs {path} cannot be used: {_reason(error)}"
        ) from error


def wrapped(made: ssl.SSLContext, raw: _socket.socket, host: str) -> ssl.SSLSocket:
    """Make the TLS handshake within the socket's timeout. Raises `OSError`."""
    # A name in bytes, because text would import the IDNA codec. SSLSocket accepts the descriptor of any socket.
    name = host.encode("ascii" if host.isascii() else "idna")
    return made.wrap_socket(raw, server_hostname=name)  # type: ignore[arg-type]


def explain(error: ssl.SSLError, where: str) -> StoreError:
    """Return the oncecron error of a failed handshake, also if the server rejects it later."""
    if isinstance(error, ssl.SSLCertVerificationError):
        mismatch = error.verify_code in _MISMATCHES
        cure = (
            "use the host name that the certificate has, or set ssl_check_hostname=false"
            if mismatch
            else "check ssl_ca_certs"
        )
        return StoreRefusesError(f"{where}: server certificate: {error.verify_message}; {cure}")
    reason = error.reason or ""
    for words, cure in _PERMANENT:
        if words in reason:
            return StoreRefusesError(f"{where}: TLS failed ({reason}): {cure}")
    return StoreUnavailable(f"{where}: TLS failed: {_reason(error)}")


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or " ".join(str(error).split())
    return error.strerror or str(error)
