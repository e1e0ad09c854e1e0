"""A Kafka broker on this machine, for the demo and the tests."""
