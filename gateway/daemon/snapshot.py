"""The gateway's state: for its parts each turn, in its run's record, as JSON, in one line."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, Final

from cloud.values import duration_text
from cloud.wire.identities import proves
from cloud.wire.reading_records import SYNCED, UNSYNCED, format_time
from gateway.daemon.gateway import Gateway
from gateway.ports import Snapshot
from gateway.system.host import vitals

_MOST_NAMED: Final = 3


def take_snapshot(gateway: Gateway) -> Snapshot:
    """Collects the state of all parts. The main thread calls."""
    return Snapshot(
        at_s=time.monotonic(),
        ended=gateway.samplers.ended,
        synced=gateway.clock.synced,
        uplink=gateway.forwarder.uplink,
        reachable_s=gateway.forwarder.kafka.reachable_s,
        outbox_problem=gateway.forwarder.outbox.problem,
        mqtt_connected=gateway.session.ready.is_set(),
        confirmed_ago_s=gateway.forwarder.confirmed_ago_s,
        durable=gateway.forwarder.has_durable,
        outbox_share=gateway.forwarder.outbox.size_bytes / gateway.in_force.config.outbox.max_bytes,
        channels=len(gateway.last),
        silent=gateway.samplers.troubles,
        stuck=gateway.watchdog.stuck,
        descriptions=gateway.samplers.descriptions,
        parked=gateway.forwarder.kafka.parked(),
        counts=run_counts(gateway),
    )


def run_counts(gateway: Gateway) -> dict[str, Any]:
    """What changes in a run's record."""
    return {
        "last_seq": gateway.context.sequences.snapshot(),
        "last_raw_seq": gateway.intake.last_raw_seq,
        **({"reading_topics": topics} if (topics := gateway.intake.reading_topics) else {}),
        "broker_counter": gateway.broker_drops.counter,
        **_shared(gateway),
        **({"stop_reason": gateway.life.stop_reason} if gateway.life.stop_reason else {}),
    }


def _shared(gateway: Gateway) -> dict[str, Any]:
    """What a run's record and the status both have."""
    return {
        "ignored": gateway.intake.ignored,
        "broker_dropped": gateway.broker_drops.count,
        "in_flight": gateway.forwarder.in_flight,
        "outbox_records": gateway.forwarder.outbox.records,
        "outbox_memory_records": gateway.forwarder.in_memory[0],
        "clock": SYNCED if gateway.clock.synced else UNSYNCED,
        "held": gateway.forwarder.held_rows,
        "repaired": gateway.hold.repaired,
        "unsynced": gateway.hold.unsynced,
        "samplers_abandoned": gateway.samplers.abandoned,
        "parked_topics": gateway.forwarder.kafka.parked_topics,
        **gateway.supply.times,
    }


def status_of(gateway: Gateway) -> dict[str, Any]:
    """Everything, as ``/api/status`` has it."""
    config = gateway.in_force.config
    stopping = gateway.life.stop.is_set()
    forwarder, counters = gateway.forwarder, gateway.forwarder.counters
    now_s, confirmed_ago_s = time.monotonic(), forwarder.confirmed_ago_s
    # Read once: the main thread may set it to None meanwhile.
    late_s, moved_m = forwarder.kafka.late_s, gateway.site_watch.moved_m
    parked = forwarder.kafka.parked()
    return {
        "gateway": config.gateway.id,
        "run": gateway.run,
        "run_proves_itself": _proves_itself(gateway),
        "state": "stopping" if stopping else "ended" if gateway.samplers.ended else "sampling",
        "now": format_time(gateway.clock.now_ns() // 1000),
        "clock_given": gateway.sync.given_offset_ms is not None,
        "clock_may_be_given": gateway.board.clock is None and gateway.sync.may_be_given,
        "own_time": gateway.board.clock is not None,
        "uplink": forwarder.uplink,
        **_shared(gateway),
        "config": {
            "loaded_at": gateway.in_force.loaded_at,
            "error": gateway.in_force.error,
            "problems": list(map(str, config.problems)),
        },
        "mqtt_connected": gateway.session.ready.is_set(),
        "mqtt_taken_over": gateway.session.taken_over,
        "sampled": sum(gateway.context.sequences.snapshot().values()),
        "received": counters.received,
        "confirmed": counters.confirmed,
        "spilled": counters.stored,
        "drained": counters.drained,
        "dead_letters": counters.dead_letters,
        "late_echoes": counters.late_echoes,
        "sampler_restarts": gateway.samplers.restarts,
        "troubles": gateway.samplers.troubles,
        "supply_troubles": gateway.supply.troubles,
        "site_moved_m": None if moved_m is None else round(moved_m),
        "sensors_hung": gateway.samplers.hung,
        "hang_restart_wait_s": round(gateway.restarts.wait_s()),
        "sensor_retries": dict(gateway.context.retries),
        "parked": {
            topic: {"for_s": round(now_s - each.since_s), "problem": each.problem}
            for topic, each in parked.items()
        },
        "kafka_problem": gateway.kafka.problem(parked.values(), answering=forwarder.kafka.answering),
        "kafka_refusal": gateway.kafka.refusal(parked.values(), answering=forwarder.kafka.answering),
        "kafka_late_s": None if late_s is None else round(late_s, 2),
        "outbox_bytes": forwarder.outbox.size_bytes,
        "outbox_max_bytes": config.outbox.max_bytes,
        "outbox_days_left": gateway.forecast.days_left(
            config, forwarder.outbox.size_bytes, forwarder.outbox.records
        ),
        "dropped": gateway.runs.drop_counts(),
        "outbox_memory_bytes": forwarder.in_memory[1],
        "outbox_problem": forwarder.outbox.problem,
        "kafka_confirmed_ago_s": None if confirmed_ago_s is None else round(confirmed_ago_s, 1),
        "uptime_s": round(now_s - gateway.life.started_s),
        "main_loop_ago_s": round(now_s - gateway.life.turned_s, 1),
        "forwarder_stuck": any(part.startswith("forward") for part in gateway.watchdog.stuck),
        "stuck": list(gateway.watchdog.stuck),
        "machine": vitals(config.outbox.path),
        "relays": gateway.interlocks.status,
        "commands": gateway.commands.status,
        "downlinks": gateway.downlinks.status,
        "http": gateway.http.status,
        "mqtt_proxy": gateway.mqtt_proxy.status,
        "spinnable": sorted(gateway.samplers.pulses()),
        "channels": {
            channel: {
                **last,
                "forwarded": counters.delivered[f"{config.gateway.id}/{channel}".encode()],
                "dropped": gateway.runs.dropped_of(channel),
            }
            for channel, last in gateway.last.own(gateway.sync.given_offset_ms).items()
        },
        "forwarded_channels": gateway.last.forwarded(),
    }


def _proves_itself(gateway: Gateway) -> bool:
    """Whether this run does; a key that is new takes another one."""
    of = gateway.in_force.config.gateway
    return of.identity_key is not None and proves(of.identity_key, of.id, gateway.run)


def status_line(snapshot: Snapshot) -> str:
    """The line that ``systemctl status`` shows: what is normal briefly, what isn't with its figure."""
    ago_s, records = snapshot.confirmed_ago_s, snapshot.counts["outbox_records"]
    acknowledged = "never" if ago_s is None else f"{duration_text(ago_s)} ago"
    uplink = "Kafka does not answer" if snapshot.uplink == "spilling" else snapshot.uplink
    parts = [
        f"{snapshot.channels} channels" + (f", silent: {_names(snapshot.silent)}" if snapshot.silent else ""),
        f"{uplink}, last acknowledged {acknowledged}",
        f"outbox {records:,} records, {snapshot.outbox_share:.0%} full" if records else "outbox empty",
    ]
    if snapshot.outbox_problem is not None:
        parts.append("the disk fails: outbox in memory")
    if not snapshot.synced:
        parts.append("clock not synchronised")
    if not snapshot.mqtt_connected:
        parts.append("no Mosquitto")
    return "; ".join(parts)


def _names(names: Collection[str]) -> str:
    first = sorted(names)[:_MOST_NAMED]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
