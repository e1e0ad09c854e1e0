"""Relays and interlocks in the config file."""
