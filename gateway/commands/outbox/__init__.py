"""`fieldgate outbox`: count, carry home or send what waits in the outbox."""
