"""What keeps the lake small and quick: compaction, clustering, retention, vacuum, copies of checkpoints."""
