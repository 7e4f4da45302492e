"""Who is told of what is wrong: findings, `check`, `notify`, pings, metrics."""
