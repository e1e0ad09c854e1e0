"""Commands from the cloud: read, executed at most once each, answered."""
