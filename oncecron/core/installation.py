"""What to do where a package or a part of oncecron cannot be loaded: for error messages alone."""

from __future__ import annotations

import sys

from oncecron.core.errors import ConfigurationError

_REQUIREMENTS = {
    "click": "click",
    "jinja2": "jinja2",
    "prometheus_client": "prometheus-client",
    "psycopg": "'psycopg[binary]'",
    "redis": "redis",
    "waitress": "waitress",
}
"""What `pip` installs, by the package that is imported."""


def broken(error: ImportError) -> ConfigurationError:
    """Return the error of an installation that lacks something, or has it in a version that is too old."""
    package = (error.name or "").partition(".")[0]
    python = sys.executable or "python3"
    if package in _REQUIREMENTS:
        return ConfigurationError(
            f"{package} cannot be loaded: {error}; call the oncecron of its own virtual environment, such as "
            f"/opt/oncecron/bin/oncecron, or run `{python} -m pip install --upgrade {_REQUIREMENTS[package]}`"
        )
    if package == __name__.partition(".")[0]:
        return ConfigurationError(
            f"a part of oncecron is missing: {error}; install oncecron again in {sys.prefix}"
        )
    return ConfigurationError(
        f"{python} cannot load what oncecron needs: {error}; use the python3 of the distribution"
    )
