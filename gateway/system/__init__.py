"""The operating system: files, systemd, interfaces, watchdog, logs."""
