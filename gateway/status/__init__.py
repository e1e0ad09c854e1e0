"""The daemon's status: its type, what is wrong by it, and how it is served: a page, JSON, metrics, health."""
