"""What an installer does at the mast: commissioning every sensor, and swapping one. A package of its own."""
