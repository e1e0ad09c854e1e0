"""The status of a daemon with which all is well, and what is changed in it."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from gateway.status.status import (
    CommandsStatus,
    ConfigStatus,
    DownlinksStatus,
    HttpStatus,
    MqttProxyStatus,
    OwnChannel,
    Status,
)
from gateway.system.host import Machine

MACHINE: Final = Machine(
    version="0.1.0", python="3.13.5", system="Debian", disk_free_bytes=20_000_000_000, cpu_celsius=48.31,
    load=0.2, uptime_s=90_000.0,
)  # fmt: skip
HTTP: Final = HttpStatus(port=None, requests=0, readings=0, refused=0, unauthorized=0, pressure=0)
COMMANDS: Final = CommandsStatus(allow=(), problem=None, results={})
CONFIG: Final = ConfigStatus(loaded_at="2026-11-21T07:00:00.000Z", error=None, problems=())
MQTT_PROXY: Final = MqttProxyStatus(
    port=None, clients=0, connects=0, messages=0, acknowledged=0, repeats=0, unauthorized=0, pressure=0,
    subscriptions_refused=0, refused={},
)  # fmt: skip

HEALTHY: Final = Status(
    gateway="mast-07", run="9f3c21ab04de", run_proves_itself=False, state="sampling",
    now="2026-11-21T07:35:01.000Z", uptime_s=60, main_loop_ago_s=0.4, stuck=(), config=CONFIG,
    machine=MACHINE, clock="synced", clock_given=False, clock_may_be_given=False, own_time=False, held=0,
    repaired=0, unsynced=0, mqtt_connected=True, mqtt_taken_over=False, broker_dropped=0, ignored={},
    received=0, dead_letters=0, late_echoes=0, uplink="healthy", kafka_problem=None, kafka_refusal=None,
    kafka_late_s=None, kafka_confirmed_ago_s=1.5, parked={}, in_flight=5, confirmed=1200,
    bytes_sent=81_920, spilled=29, drained=0, outbox_records=12, outbox_bytes=1 << 28,
    outbox_max_bytes=1 << 30, outbox_days_left=41.0,
    outbox_problem=None, outbox_memory_records=0, outbox_memory_bytes=0, dropped={}, sampled=1234,
    channels={}, forwarded_channels={}, troubles={}, sensors_hung=(), hang_restart_wait_s=0,
    sensor_retries={}, sampler_restarts=0, samplers_abandoned=0, spinnable=(), site_moved_m=None,
    supply_troubles=(), under_voltage=None, throttled=None, relays={}, commands=COMMANDS,
    downlinks=DownlinksStatus(problem=None, topics={}), http=HTTP, mqtt_proxy=MQTT_PROXY,
)  # fmt: skip


def status(**changes: Any) -> Status:
    """The status with these fields changed."""
    return replace(HEALTHY, **changes)


def channel(**changes: Any) -> OwnChannel:
    """A good last reading of a cup's wind speed, or what is changed in it."""
    good: dict[str, Any] = {
        "time": "2026-11-21T07:35:00.000Z", "period_ms": 1000, "value": 7.235, "unit": "m/s", "raw": 9.0,
        "raw_unit": "Hz", "quality": 1, "reasons": (), "seq": 600, "valid": 600, "forwarded": 600,
        "dropped": 0,
    }  # fmt: skip
    return OwnChannel(**(good | changes))
