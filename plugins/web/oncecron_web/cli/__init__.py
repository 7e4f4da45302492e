"""The commands `report`, `web` and `metrics`."""
