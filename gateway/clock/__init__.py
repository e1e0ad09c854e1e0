"""The machine's clock, its synchronisation, and the repair of times stamped before it."""
