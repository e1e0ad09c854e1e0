"""The daemon on the mast: samples, publishes, forwards, and keeps what the cloud has not confirmed."""
