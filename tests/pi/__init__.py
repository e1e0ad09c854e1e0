"""What an installer does on a Raspberry Pi, on an emulated one: only with --pi (make test-pi)."""
