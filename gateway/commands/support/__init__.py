"""``fieldgate support-bundle``: what somebody far away needs to see of a mast, without its secrets.

``parts`` gathers, ``redaction`` takes out, ``bundle`` writes, ``command`` is the command line.
"""
