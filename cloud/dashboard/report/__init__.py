"""A mast's month on paper: one HTML file or a PDF, from the tables of a lake. Needs the extra ``report``."""
