"""The store of one machine: a SQLite file, nothing to install."""
