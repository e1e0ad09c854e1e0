"""Durable queues of opaque records. Knows record numbers and bytes; not their meaning or destination."""
