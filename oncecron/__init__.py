"""Run a crontab entry once cluster-wide."""

__version__ = "0.1.0"
