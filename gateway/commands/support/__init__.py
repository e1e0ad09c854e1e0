"""``fieldgate support-bundle``: what remote support needs to see of a mast, without its secrets.

``parts`` gathers, ``redaction`` allows, ``bundle`` writes, ``command`` is the command line.
"""
