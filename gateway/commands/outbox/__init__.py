"""`fieldgate outbox`: look into the outbox, carry it home, send it."""
