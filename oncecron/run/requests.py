"""Which requests of people a holder obeys: those that `oncecron stop` and `oncecron release` send, and no others.

A request comes from the store, where another program, or a person with SQL, may have written anything. A wrong one
must not harm the job, so it is ignored.
"""

from __future__ import annotations

from oncecron.core.light_modules import signal
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import REQUEST_KINDS, REQUEST_SIGNALS
from oncecron.core.units import LONGEST_DURATION, format_duration

if TYPE_CHECKING:
    from oncecron.core.model import Request

_NUMBERS = frozenset(int(getattr(signal, f"SIG{name}")) for name in REQUEST_SIGNALS)


def wrong_with(request: Request) -> str | None:
    """Return what is wrong with a request, or None."""
    if request.kind not in REQUEST_KINDS:
        return f"{request.kind!r} is not one of {', '.join(REQUEST_KINDS)}"
    if request.signal not in _NUMBERS:
        return f"signal {request.signal} is not one of {', '.join(REQUEST_SIGNALS)}"
    if request.grace is not None and not 0 <= request.grace <= LONGEST_DURATION:
        return f"a grace of {format_duration(request.grace)} is not 0 to 3653d"
    return None
