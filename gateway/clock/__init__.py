"""Whether the machine's clock can be trusted, and the repair of times stamped before it could."""
