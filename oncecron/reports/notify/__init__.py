"""What a pass of `oncecron notify` does, from the findings to the acknowledgement of each channel."""
