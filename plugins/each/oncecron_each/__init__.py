"""Items: a list is loaded once, its batches are drawn by the slots of all hosts, and each item runs once."""
