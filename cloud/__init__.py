"""The Kafka side: wire records, producer, provisioning, local broker, the analysts' tools.

Importing this package imports nothing else, so that ``cloud.wire`` loads without confluent_kafka.
"""
