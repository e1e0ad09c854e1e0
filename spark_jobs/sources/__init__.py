"""Streams the jobs read."""
