"""Who fires: the names of this host and of its user, as they are recorded."""

from __future__ import annotations

import os

from oncecron.core.errors import ConfigurationError
from oncecron.core.stderr import valid

_LONGEST_HOST = 255


def host_name() -> str:
    """Return $ONCECRON_HOST, or the kernel's name of this host. Raises `ConfigurationError` if it is too long."""
    name = valid(os.environ.get("ONCECRON_HOST") or os.uname().nodename)
    if len(name) > _LONGEST_HOST:
        raise ConfigurationError(
            f"$ONCECRON_HOST has {len(name)} characters; use at most {_LONGEST_HOST}"
        )
    return name


def user_name() -> str:
    """Return the name of the effective user, or its number where it has none."""
    import pwd  # noqa: PLC0415 - a test replaces it

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
