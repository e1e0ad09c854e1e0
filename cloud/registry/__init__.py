"""The schema registry: what readings in Avro are written and read by."""
