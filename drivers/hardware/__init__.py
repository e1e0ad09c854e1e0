"""Pins, buses and lines as drivers use them."""
