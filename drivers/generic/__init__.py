"""Drivers for whole families of sensors: what they measure is an option."""
