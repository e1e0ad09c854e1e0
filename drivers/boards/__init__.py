"""The boards drivers run on: the Raspberry Pi and its emulations."""
