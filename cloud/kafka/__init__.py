"""The Kafka side: producer, provisioning, and reading topics back."""
