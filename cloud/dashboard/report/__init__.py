"""A mast's day, week or month: an HTML file or a PDF, of a lake's tables. Needs the extra ``report``."""
