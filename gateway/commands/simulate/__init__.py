"""``fieldgate simulate``: the past of a fleet that never was, through the real pipeline."""
