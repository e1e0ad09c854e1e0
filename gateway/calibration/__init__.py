"""Calibration records and their history."""
