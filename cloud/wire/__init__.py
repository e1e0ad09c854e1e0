"""Records as they are on the wire: one parser and one encoder for each."""
