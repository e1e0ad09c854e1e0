"""One run of the gateway: build, main loop, reload, snapshot."""
