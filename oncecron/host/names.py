"""Who fires: this host, its user and its boot, as they are recorded."""

from __future__ import annotations

import os

from oncecron.core.errors import ConfigurationError
from oncecron.core.masking import valid

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


def machine() -> str | None:
    """Return a short name of this boot of this machine or container; None where the kernel tells none.

    It tells two machines with one host name apart. /etc/machine-id does not: clones share it, and containers have none.
    Containers of one kernel share its boot id, but each has a UTS namespace: it is what has the host name.
    """
    boot = boot_id()
    try:
        return f"{boot[:8]}.{os.stat('/proc/self/ns/uts').st_ino}" if boot else None
    except OSError:
        return None


def boot_id() -> str:
    """Return the id of this boot of the machine; empty where the kernel has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
