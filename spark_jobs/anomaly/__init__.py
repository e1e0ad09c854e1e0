"""Anomaly detection: features, rules, network and scores. NumPy in, NumPy out; no Spark but in ``store``."""
