"""The session with the local broker, and what its messages mean."""
