"""Pages over a lake, for people: NiceGUI, with charts and tables that it brings along."""
