"""Keep the end of a job's output while it is forwarded: the last bytes, as many as `--capture` says."""
