"""`fieldgate provision`: Kafka topics, and the local Mosquitto's listeners and users."""
