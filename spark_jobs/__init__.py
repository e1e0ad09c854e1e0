"""The cloud pipeline: PySpark streaming jobs from Kafka to Delta tables.

Data flows one way: ``sources`` (streams) to ``transforms`` (pure, DataFrame to DataFrame) to ``sinks``
(tables); ``jobs`` wires them, ``platform`` has what all stand on. Of our own packages ``cloud`` alone is
imported, so that a cluster needs nothing else.
"""
