"""Crontabs: text in, text and findings out; no store, no click."""
