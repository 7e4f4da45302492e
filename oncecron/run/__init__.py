"""One firing, in the order of its life."""
