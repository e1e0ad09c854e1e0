"""The Kafka side: wire schema, producer, provisioning, local broker, the analysts' tools.

Importing this package imports nothing else, so that ``cloud.schema`` loads without confluent_kafka.
"""
