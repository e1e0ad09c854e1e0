"""Rules and what they make of readings: pure, no Spark, no clock of its own, no I/O but the rules' file."""
