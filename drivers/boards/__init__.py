"""Boards: the real one, simulated weather, replayed files."""
