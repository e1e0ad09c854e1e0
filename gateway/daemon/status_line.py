"""What the daemon says of itself in one line: ``systemctl status`` shows it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_MOST_NAMED: Final = 3
_AGES: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def status_line(
    *,
    channels: int,
    silent: Collection[str],
    uplink: str,
    confirmed_ago_s: float | None,
    outbox_records: int,
    outbox_share: float,
    outbox_problem: str | None,
    synced: bool,
    mqtt_connected: bool,
) -> str:
    """The line. ``silent``: sensors that give nothing; ``outbox_share``: how full, 0 to 1; ages in seconds.

    What is as it should be is said briefly, what isn't comes with its figure.
    """
    said = [f"{channels} channels" + (f", silent: {_names(silent)}" if silent else "")]
    acknowledged = "never" if confirmed_ago_s is None else f"{_age(confirmed_ago_s)} ago"
    away = "Kafka does not answer, " if uplink == "spilling" else f"{uplink}, "
    said.append(f"{away}last acknowledged {acknowledged}")
    if outbox_records:
        said.append(f"outbox {outbox_records:,} records, {outbox_share:.0%} full")
    else:
        said.append("outbox empty")
    if outbox_problem is not None:
        said.append("the disk fails: outbox in memory")
    if not synced:
        said.append("clock not synchronised")
    if not mqtt_connected:
        said.append("no Mosquitto")
    return "; ".join(said)


def _names(names: Collection[str]) -> str:
    first = sorted(names)[:_MOST_NAMED]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def _age(seconds: float) -> str:
    unit_s, unit = next((each for each in _AGES if seconds >= each[0]), _AGES[-1])
    return f"{seconds / unit_s:.0f} {unit}"
