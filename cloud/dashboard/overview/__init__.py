"""What the pages show of all masts together, or of the whole pipeline."""
