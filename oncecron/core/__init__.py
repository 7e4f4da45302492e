"""The values and rules that all layers share."""
