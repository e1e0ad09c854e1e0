"""What the channels of other devices' readings are called. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gateway.config.bridges.model import READING_KEYS, ForwardConfig
from gateway.config.values import filled, matched

RAW_QUANTITY: Final = "raw"
"""What stands for the quantity in the channel of a message that is forwarded as it is."""
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_MAX_NAME: Final = 128


def singles(forward: ForwardConfig) -> Iterator[ForwardConfig]:
    """A forward of several readings as one forward for each; none for any other."""
    for each in forward.readings or ():
        channel = forward.channel if each.channel is None else each.channel
        keys = {key: getattr(each, key) for key in READING_KEYS}
        yield replace(forward, readings=None, channel=channel, **keys)


def channel_name(forward: ForwardConfig, topic: str) -> str | None:
    """The first half of a channel: the template filled in, or else the topic; None where none comes of it.

    Raw messages of one forward are counted together, so that topics without end make one channel only.
    """
    if forward.payload == "raw":
        plain = [level for level in forward.filter.split("/") if level not in ("+", "#", "")]
        name = (forward.channel or "-".join(map(_legal, plain)) or RAW_QUANTITY)[:_MAX_NAME]
    elif forward.channel is None:
        name = "-".join(map(_legal, topic.split("/")))
    else:
        wild = matched(forward.filter, topic)
        name = filled(forward.channel, ["-".join(map(_legal, each.split("/"))) for each in wild])
    return name if 0 < len(name) <= _MAX_NAME else None


def _legal(level: str) -> str:
    """A level in the letters of a name: other scripts' as in domain names, what else there is as ``_``."""
    if not level.isascii() and len(level) <= _MAX_NAME:
        level = "xn--" + level.encode("punycode").decode()
    return _NOT_IN_A_NAME.sub("_", level)
