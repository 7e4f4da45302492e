"""One firing: its spec, wrapper, guard, job, store thread and spool."""
