"""The waits and limits in time of `notify`, each with its reason."""

from __future__ import annotations

NOTIFY_TTL = 15.0
"""The ttl of a pass of `notify`: the pass of a dead host is over before the next minute."""
NOTIFY_WAITS = 5.0
"""A host whose file has a mistake in a channel lets the hosts go first that can use all channels."""
NOTIFY_TIMEOUT = 50.0
"""A pass of `notify` is stopped after this long, before the next minute."""
CHANNEL_TIMEOUT = 20.0
"""A channel of `notify` acknowledges a message within this time, unless its `timeout` says otherwise."""
LONGEST_CHANNEL_TIMEOUT = 40.0
"""The longest `timeout` of a channel: the pass has to record what was sent before it is stopped itself."""
LAST_WORDS = 0.5
"""What a program has printed is read for this long after its end, if others that it left running keep the pipe open."""
USUAL_REMINDER = "24h"
"""An open finding is said again after this time, unless `remind` says otherwise."""
SHORTEST_REMINDER = 600.0
"""The least that `remind` may be: more often, it would be noise."""
CHANNEL_TRIES = 2
"""A channel that fails this many times in a row is a finding: a single failure is sent again a minute later."""
CHANNEL_FORGOTTEN = 3600.0
"""A channel that failed, and was not tried again for this long, is no longer configured."""
