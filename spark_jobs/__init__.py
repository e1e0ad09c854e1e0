"""The cloud pipeline: PySpark streaming jobs from Kafka to Delta tables.

Data flows one way: ``sources`` (streams) to ``transforms`` (pure, DataFrame to DataFrame) to ``sinks``
(tables); ``state`` is what a job remembers between batches, ``jobs`` wires them. Of our own packages only
the wire records are imported, so that a cluster needs ``cloud.wire`` and this package, nothing else.
"""
