"""From the ledger to Kafka or to the outbox, and from the outbox to Kafka.

``forwarder`` owns the thread and its inbox; ``ledger`` keeps what is in memory; ``uplink`` sends it or has it
stored, ``outbox_writer`` stores it, ``backlog`` sends stored rows.

A row of the outbox is removed by ``backlog`` once Kafka has confirmed it, by ``forwarder`` when a live
copy is confirmed late, and by the outbox itself for want of room: announced.
"""
