"""One firing: its spec, wrapper, guard, job, store thread and spool. Here: the modules that every firing imports."""

MODULES = (
    *("core.errors", "core.units", "core.timing", "core.light_modules", "core.system", "core.clock"),
    *("core.masking", "core.stderr", "config", "core.model", "config.options", "config.run_parser"),
    *("core.light_ctypes", "stores", "stores.address", "run.program", "run.process_tree", "core.safe_paths"),
    *("run.spool", "run.reporter", "config.file", "core.tick", "config.rules", "config.settings"),
    *("core.host", "core.retry", "run.spec", "run.events", "run.job", "run.firing_states"),
    *("run.claimer", "run.store_thread", "run.guard", "run.wrapper", "run.firing"),
)  # fmt: skip
"""What every firing imports, for `core.light_imports.load`; a test compares it."""
