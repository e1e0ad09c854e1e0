"""Quality control of readings after the US IOOS QARTOD manuals: tests flag, and never change or drop a value.

``flags``: what a reason leads to. ``judge``: the tests of one channel. ``jumps`` and ``stillness``: the tests
that need the readings before. ``comparison`` and ``mates``: those that need the mast's other channels.
"""

from gateway.quality.flags import REASON_FLAGS, flag, range_reasons

__all__ = ["REASON_FLAGS", "flag", "range_reasons"]
