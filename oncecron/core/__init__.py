"""Values and rules that every layer shares: no I/O, and no clock but `clock`."""
