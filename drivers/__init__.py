"""Sensor drivers and the boards they run on: volts, pulses and datasheets; no MQTT, SQL or flags."""
