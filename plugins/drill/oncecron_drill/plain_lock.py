"""A lock as many write it, in ten lines: what the control of a drill fires, and must catch.

    python3 plain_lock.py KEY COMMAND...

It finds the store as oncecron does. Where the key is taken, it leaves with 0. It has no guard, and renews nothing: see
`DrilledStore.plain_lock`.
"""

import os
import subprocess
import sys


def main() -> int:
    """Return the status of the command."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.path.dirname(here), *(path for path in sys.path if path != here)]
    from oncecron.config.options import NAMESPACE, STORE_OPTIONS  # noqa: PLC0415 - found by the line above
    from oncecron.config.settings import Settings  # noqa: PLC0415
    from oncecron.core.errors import OncecronError  # noqa: PLC0415
    from oncecron_drill.stores import open_drilled  # noqa: PLC0415

    key, *command = sys.argv[1:]
    try:
        settings = Settings(STORE_OPTIONS, {})
        store = open_drilled(settings.address(), settings[NAMESPACE.name])
        with store.plain_lock(key) as is_ours:
            return subprocess.run(command, check=False).returncode if is_ours else 0
    except OncecronError as error:
        sys.stderr.write(f"plain lock: {error}\n")
        return 75


if __name__ == "__main__":
    sys.exit(main())
