"""Who is told of what `check` finds: a pass (`notify`) sends its changes to channels, each until it is acknowledged."""
