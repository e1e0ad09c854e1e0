"""``fieldgate doctor``: examines this machine, by a config, and names the remedies."""
