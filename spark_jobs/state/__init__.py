"""What a job remembers between batches, beyond its checkpoint."""
