"""What `oncecron doctor` says, and in the same way of every store: its clock, whether its connection is encrypted."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import MAX_CLOCK_SKEW, NOTABLE_CLOCK_SKEW

if TYPE_CHECKING:
    from typing import Literal


FIRINGS = "firings"
"""The subject of what keeps all firings from a start now: it is said first."""


class Diagnosis(NamedTuple):
    """One thing that `oncecron doctor` has looked at, in the order of its published fields."""

    state: Literal["ok", "warn", "fail"]
    subject: str
    text: str
    cure: str | None = None
    """What to do about it."""


def of_clock(store: float, before: float, after: float) -> Diagnosis:
    """Judge the store's clock, which it read between the host's times `before` and `after` (epoch seconds)."""
    offset = max(0.0, before - store, store - after)
    text = f"this host's clock and the store's clock differ by {offset:.1f} s"
    cure = "compare `date -u` on this host and on the store's server, and start a time service (chrony)"
    if offset > MAX_CLOCK_SKEW:
        return Diagnosis("fail", "clock", f"{text}: scheduled ticks are refused", cure)
    if offset > NOTABLE_CLOCK_SKEW:
        return Diagnosis("warn", "clock", text, cure)
    return Diagnosis("ok", "clock", f"{text} at most")


def of_encryption(host: str, encrypted: bool, verified: bool, cure: str) -> Diagnosis:
    """Judge a connection to a host; `verified`: whether certificate and name are checked."""
    if host.startswith(("/", "@", "127.")) or host in ("", "localhost", "::1"):
        return Diagnosis("ok", "encryption", "the connection does not leave this host")
    if not encrypted:
        text = f"the connection to {host} is not encrypted: jobs and records can be read and forged"
        return Diagnosis("warn", "encryption", text, cure)
    if not verified:
        text = f"the connection to {host} is encrypted, but its certificate is not checked"
        return Diagnosis("warn", "encryption", text, cure)
    return Diagnosis("ok", "encryption", f"TLS, and the certificate of {host} is checked")
