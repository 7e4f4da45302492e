"""What people ask of a log beyond its rows: jobs at a glance, one tick explained, the promise audited."""
