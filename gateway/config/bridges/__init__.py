"""What passes between local devices and Kafka without being a sensor of the gateway's, in the config file."""
