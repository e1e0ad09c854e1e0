"""Sensors read on a grid of periods, by a thread each."""
