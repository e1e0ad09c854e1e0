"""Pure DataFrame to DataFrame functions: no I/O, no clock."""
