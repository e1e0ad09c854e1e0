"""``fieldgate support-bundle``: what remote support needs of a mast, without its secrets."""
