"""A mast's statistics, readings and instruments as files for other programs. Needs the extra ``analyst``."""
