"""The last of what a job writes, kept while it is passed on."""
