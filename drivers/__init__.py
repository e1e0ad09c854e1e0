"""Sensor drivers and the boards they run on. Knows volts, pulses and datasheets; not MQTT, SQL or flags."""
