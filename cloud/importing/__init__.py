"""``fieldgate import``: files of other loggers into the lake, by a mapping."""
