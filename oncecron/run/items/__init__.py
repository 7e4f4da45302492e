"""The items of a tick: one firing of `oncecron each` on one host."""
