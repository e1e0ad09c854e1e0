"""Sensors emulated beneath the real drivers: pulses, codes, frames."""
