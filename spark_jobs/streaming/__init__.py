"""Running queries: checkpoints, supervision, progress."""
