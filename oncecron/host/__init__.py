"""What a host is to oncecron: its names, its files, standard error, and the installation. Core has rules alone."""
