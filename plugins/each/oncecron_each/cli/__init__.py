"""The commands `each` and `items`."""
