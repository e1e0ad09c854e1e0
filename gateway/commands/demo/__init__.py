"""Everything on this machine: broker, Mosquitto, gateway and Spark jobs, started, counted and stopped."""
