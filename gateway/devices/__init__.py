"""What devices hand to the gateway itself, without a broker in between."""
