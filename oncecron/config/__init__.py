"""What the command line, the environment and the configuration file say, as checked values."""
