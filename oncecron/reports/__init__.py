"""Reports on the log: all jobs at a glance, one tick explained, the promise audited."""
