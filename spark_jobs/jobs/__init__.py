"""Wiring: which source goes through which transforms into which sink."""
