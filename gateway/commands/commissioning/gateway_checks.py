"""The gateway itself: whether readings leave, where they wait, whether its clock is set.

By the running daemon's own status (``/api/status``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.calibration.history import UnreadableHistory, channel_records, history_path, read_history
from gateway.commands.calibrations import standing
from gateway.commands.commissioning.checks import Result
from gateway.config import Config

_LIVE_ACK_S: Final = 30.0
"""Live, something is confirmed each second; a metered uplink confirms a batch every ``batch_s``."""
_FEW_DAYS: Final = 7.0
_HOT_CELSIUS: Final = 80.0
_NOT_RUNNING: Final = "the daemon doesn't run: sudo systemctl enable --now fieldgate"


def gateway_checks(
    config: Config, status: Mapping[str, Any] | None, stale: Sequence[str]
) -> Iterator[tuple[str, Result]]:
    """Check and result, in order. Pure.

    ``stale`` are channels that the daemon measures with other figures than the config's.
    """
    if status is None:
        yield "daemon", Result("fault", _NOT_RUNNING)
        return
    yield "daemon", _daemon(status)
    reload = f"the daemon has other figures for {', '.join(stale)}: sudo systemctl reload fieldgate"
    yield "calibrations", _result(not stale, "the daemon measures with the config's", reload)
    connected = bool(status.get("mqtt_connected"))
    yield "broker", _result(connected, "local broker connected", "no connection to the local broker")
    yield "uplink", _uplink(config, status)
    yield "outbox", _outbox(status)
    synced = status.get("clock") == "synced"
    yield "clock", _result(synced, "synchronised", "not synchronised: readings wait for it")


def not_in_force(config: Config) -> list[str]:
    """Channels whose calibration the daemon hasn't taken over, by its own history."""
    try:
        known = standing(read_history(history_path(config)), channel_records(config))
    except UnreadableHistory:
        return ["every sensor"]
    return list(dict.fromkeys(each.record.channel for each in known if "reload" in each.state))


def _result(good: bool, words: str, otherwise: str | None = None) -> Result:
    return Result("passed", words) if good else Result("fault", otherwise or words)


def _daemon(status: Mapping[str, Any]) -> Result:
    if error := (status.get("config") or {}).get("error"):
        return Result("fault", f"it has refused the config file as it is now: {error}")
    if hung := status.get("sensors_hung"):
        return Result("fault", f"hangs: {', '.join(hung)}")
    machine = status.get("machine") or {}
    celsius = machine.get("cpu_celsius")
    if celsius is not None and celsius >= _HOT_CELSIUS:
        return Result("fault", f"the processor is at {celsius:.0f} °C: shade or vent the box")
    uptime_s = status.get("uptime_s", 0)
    return Result("passed", f"runs, version {machine.get('version')}, since {uptime_s:.0f} s")


def _uplink(config: Config, status: Mapping[str, Any]) -> Result:
    if parked := status.get("parked_topics"):
        topics = ", ".join(map(str, parked))
        return Result("fault", f"Kafka takes nothing for {topics}: missing topic or right")
    ago_s = status.get("kafka_confirmed_ago_s")
    limit_s = _LIVE_ACK_S + (2 * config.uplink.batch_s if config.uplink.mode == "metered" else 0.0)
    if ago_s is None:
        return Result("fault", f"Kafka has confirmed nothing so far ({config.kafka.bootstrap_servers})")
    words = f"Kafka's last acknowledgement {ago_s:.0f} s ago"
    return Result("passed" if ago_s <= limit_s else "fault", words, {"acknowledged_ago_s": float(ago_s)})


def _outbox(status: Mapping[str, Any]) -> Result:
    if problem := status.get("outbox_problem"):
        return Result("fault", f"can't be written: {problem}")
    waiting = f"{status.get('outbox_records', 0):,} records wait"
    days = status.get("outbox_days_left")
    if days is None:
        return Result("passed", waiting)
    words = f"{waiting}; room for {days:.1f} days without uplink"
    return Result("passed" if days >= _FEW_DAYS else "fault", words, {"days": days})
