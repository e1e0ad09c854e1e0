"""The tables, read without a JVM."""
