"""Outputs that the gateway switches by its own readings, with nothing but itself."""
