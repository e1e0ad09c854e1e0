"""Tables the jobs write."""
