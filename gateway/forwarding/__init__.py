"""From the ledger to Kafka or to the outbox, and from the outbox to Kafka."""
