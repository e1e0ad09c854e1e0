"""What all jobs stand on: settings, the Spark session, tables' columns, files, metrics."""
