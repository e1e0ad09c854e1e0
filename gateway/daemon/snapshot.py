"""The gateway's state: for its parts each turn, in its run's record, as its status, in one line."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from cloud.wire.identities import proves
from cloud.wire.reading_records import SYNCED, UNSYNCED, format_time
from gateway.daemon.gateway import Gateway
from gateway.ports import Snapshot
from gateway.status import findings
from gateway.status.status import ConfigStatus, OwnChannel, ParkedStatus, Status
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
        "parked": _parked(gateway),
        "bytes_sent": gateway.kafka.bytes_sent,
        **gateway.supply.times,
    }


def _parked(gateway: Gateway) -> dict[str, ParkedStatus]:
    now_s = time.monotonic()
    return {
        topic: ParkedStatus(round(now_s - each.since_s), each.problem)
        for topic, each in gateway.forwarder.kafka.parked().items()
    }


def status_of(gateway: Gateway) -> Status:
    """Everything, and what is wrong by it. Any thread may call."""
    config = gateway.in_force.config
    stopping = gateway.life.stop.is_set()
    forwarder, counters = gateway.forwarder, gateway.forwarder.counters
    now_s, confirmed_ago_s = time.monotonic(), forwarder.confirmed_ago_s
    # Read once: the main thread may set it to None meanwhile.
    late_s, moved_m = forwarder.kafka.late_s, gateway.site_watch.moved_m
    parked, answering = forwarder.kafka.parked(), forwarder.kafka.answering
    status = Status(
        gateway=config.gateway.id,
        run=gateway.run,
        run_proves_itself=_proves_itself(gateway),
        state="stopping" if stopping else "ended" if gateway.samplers.ended else "sampling",
        now=format_time(gateway.sync.now_ms * 1000),
        uptime_s=round(now_s - gateway.life.started_s),
        main_loop_ago_s=round(now_s - gateway.life.turned_s, 1),
        stuck=gateway.watchdog.stuck,
        config=ConfigStatus(
            loaded_at=gateway.in_force.loaded_at,
            error=gateway.in_force.error,
            problems=tuple(map(str, config.problems)),
        ),
        machine=vitals(config.outbox.path),
        clock_given=gateway.sync.given_offset_ms is not None,
        clock_may_be_given=gateway.board.clock is None and gateway.sync.may_be_given,
        own_time=gateway.board.clock is not None,
        mqtt_connected=gateway.session.ready.is_set(),
        mqtt_taken_over=gateway.session.taken_over,
        received=counters.received,
        dead_letters=counters.dead_letters,
        late_echoes=counters.late_echoes,
        uplink=forwarder.uplink,
        kafka_problem=gateway.kafka.problem(parked.values(), answering=answering),
        kafka_refusal=gateway.kafka.refusal(parked.values(), answering=answering),
        kafka_late_s=None if late_s is None else round(late_s, 2),
        kafka_confirmed_ago_s=None if confirmed_ago_s is None else round(confirmed_ago_s, 1),
        confirmed=counters.confirmed,
        spilled=counters.stored,
        drained=counters.drained,
        outbox_bytes=forwarder.outbox.size_bytes,
        outbox_max_bytes=config.outbox.max_bytes,
        outbox_days_left=gateway.forecast.days_left(
            config, forwarder.outbox.size_bytes, forwarder.outbox.records
        ),
        outbox_problem=forwarder.outbox.problem,
        outbox_memory_bytes=forwarder.in_memory[1],
        dropped=gateway.runs.drop_counts(),
        sampled=sum(gateway.context.sequences.snapshot().values()),
        channels={
            name: OwnChannel(
                **msgspec.structs.asdict(last),
                valid=gateway.last.valid(name),
                forwarded=counters.delivered[f"{config.gateway.id}/{name}".encode()],
                dropped=gateway.runs.dropped_of(name),
            )
            for name, last in gateway.last.own(gateway.sync.given_offset_ms).items()
        },
        forwarded_channels=gateway.last.forwarded(),
        troubles=gateway.samplers.troubles,
        sensors_hung=tuple(gateway.samplers.hung),
        hang_restart_wait_s=round(gateway.restarts.wait_s()),
        sensor_retries=dict(gateway.context.retries),
        sampler_restarts=gateway.samplers.restarts,
        spinnable=tuple(sorted(gateway.samplers.pulses())),
        site_moved_m=None if moved_m is None else round(moved_m),
        supply_troubles=tuple(gateway.supply.troubles),
        relays=gateway.interlocks.status,
        commands=gateway.commands.status,
        downlinks=gateway.downlinks.status,
        http=gateway.http.status,
        mqtt_proxy=gateway.mqtt_proxy.status,
        **_shared(gateway),
    )
    return msgspec.structs.replace(status, findings=tuple(findings.find(status, config)))


def _proves_itself(gateway: Gateway) -> bool:
    """Whether this run does; a key that is new takes another one."""
    of = gateway.in_force.config.gateway
    return of.identity_key is not None and proves(of.identity_key, of.id, gateway.run)


def status_line(status: Status) -> str:
    """The line that ``systemctl status`` shows: what is normal briefly, and what is wrong."""
    silent = sorted(status.troubles)
    more = f" and {len(silent) - _MOST_NAMED} more" if len(silent) > _MOST_NAMED else ""
    names = f", silent: {', '.join(silent[:_MOST_NAMED])}{more}" if silent else ""
    wrong = [f"{each.area}: {each.what}" for each in status.wrong] or ["all is well"]
    return "; ".join([f"{len(status.channels)} channels{names}", f"uplink {status.uplink}", *wrong])
