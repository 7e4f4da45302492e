"""Stop a pass of `oncecron notify` at one of its moments, so that a test can kill it there.

Python imports this at its start if its directory is in $PYTHONPATH. $STOP_AT is EVENT:FUNCTION:NUMBER: the n-th call,
or return, of a function of a pass. The process stops itself with SIGSTOP, and all its threads with it.
"""

import os
import signal
import sys
import threading
from collections import Counter
from types import FrameType

STOP_AT = os.environ.get("STOP_AT")
PLACES = ("/oncecron/watch/", "/oncecron_notify/")
seen: Counter[str] = Counter()


def profile(frame: FrameType, event: str, _: object) -> None:
    """Count the event; stop at the one that is meant."""
    if event in ("call", "return") and any(place in frame.f_code.co_filename for place in PLACES):
        moment = f"{event}:{frame.f_code.co_name}"
        seen[moment] += 1
        if f"{moment}:{seen[moment]}" == STOP_AT:
            os.kill(os.getpid(), signal.SIGSTOP)


if STOP_AT and os.environ.get("ONCECRON_KEY") == "oncecron/notify":
    threading.setprofile(profile)
    sys.setprofile(profile)
