"""The commands of ``fieldgate``: what each takes, and which module does it, imported only then."""
