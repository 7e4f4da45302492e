"""Keep the end of a job's output while it is forwarded."""
