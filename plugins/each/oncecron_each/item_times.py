"""The waits and limits in time of `each`, each with its reason."""

from __future__ import annotations

from oncecron.core.units import DAY

LONGEST_LOAD = 1.0 * DAY
"""How long a firing of `each` waits for the host that loads the list."""
LOAD_CALL_TIMEOUT = 60.0
"""For one chunk of a load: a busy server needs longer for 5,000 items than for a heartbeat."""
PROGRESS_INTERVAL = 1.0
"""Between two looks at the progress of a tick, of all hosts: for a bar at a terminal."""
PROGRESS_LINE_INTERVAL = 60.0
"""Between two lines of progress with -v."""
