"""``fieldgate service report`` reports how the mast is: an event of the gateway, and the same in the journal.

Run each day by fieldgate-report.timer. It requests the daemon's status and leaves the event in the spool for
it, so that an uplink that is down only delays it. Where the daemon doesn't respond, it reports that.

Counts are since the last report, where that was of the same run of the daemon, else since the run began.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from cloud.command_line import OK, add_config, fail
from gateway.config import Config, load
from gateway.reporting.event_spool import spool_event
from gateway.status.client import NoStatus, fetch
from gateway.status.status import Status
from gateway.system.atomic_file import read_state, write_atomic
from gateway.system.host import Machine, vitals

EVENT: Final = "report"
_COUNTS: Final = {"sampled": "seq", "forwarded": "forwarded", "dropped": "dropped"}
"""The counts reported of each channel, by their names in the status."""
_OF_MACHINE: Final = ("under_voltage", "throttled", "bytes_sent")
"""Counts that are no channel's; None where nothing counts them."""

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Counts(msgspec.Struct, frozen=True):
    """A channel's readings since the daemon's start, as its status has them."""

    seq: _Count = 0
    valid: _Count = 0
    forwarded: _Count = 0
    dropped: _Count = 0


class Totals(msgspec.Struct, frozen=True):
    """Holds what of a status is stored until the next report."""

    run: str
    uptime_s: Annotated[float, msgspec.Meta(ge=0)]
    channels: dict[str, Counts]
    under_voltage: _Count | None = None
    throttled: _Count | None = None
    bytes_sent: _Count | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the config, or what became of an upgrade."""
    add_config(parser)
    upgrade = parser.add_argument_group("what became of an upgrade, in place of how the mast is")
    upgrade.add_argument("--upgrade", nargs=2, metavar=("FROM", "TO"), help="the package's versions")
    upgrade.add_argument("--reverted", metavar="REASON", help="FROM has come back, for this")
    meaning = "between the end of the version before and READY of the one that runs"
    upgrade.add_argument("--gap-s", type=float, metavar="SECONDS", help=meaning)


def run(arguments: argparse.Namespace) -> int:
    """Reports once. Raises ConfigError, NotSpooled."""
    config = load(arguments.config, at_work=False)
    if arguments.upgrade is not None:
        before, after = arguments.upgrade
        return report_upgrade(config, before, after, arguments.reverted, arguments.gap_s)
    return make_report(config, fetch)


def report_upgrade(config: Config, before: str, after: str, reverted: str | None, gap_s: float | None) -> int:
    """Leaves the event that a new version runs, or has given way to the one before. Raises NotSpooled."""
    fields: dict[str, Any] = {"from": before, "to": after}
    if reverted is not None:
        fields["reason"] = reverted
    if gap_s is not None:
        fields["gap_s"] = gap_s
    spool_event(config.outbox.path, "upgraded" if reverted is None else "upgrade-reverted", fields)
    return OK


def make_report(config: Config, fetch_status: Callable[[str], Status]) -> int:
    """Reports once; returns the exit code. ``fetch_status`` raises NoStatus. Raises NotSpooled."""
    path = config.outbox.path.with_name(config.outbox.path.name + ".report")
    totals: Totals | None = None
    try:
        status = fetch_status(config.status.listen)
    except NoStatus as error:
        fields = {"daemon": str(error), **_machine_fields(vitals(config.outbox.path))}
    else:
        totals = msgspec.convert(status, Totals, from_attributes=True)
        fields = report(status, read_state(path, partial(msgspec.convert, type=Totals), None))
    # Of its settings, not of the file: their text has no secrets, which readers of Kafka could try to guess.
    fields["config_hash"] = hashlib.sha256(repr(replace(config, problems=())).encode()).hexdigest()[:16]
    print(msgspec.json.encode(fields).decode())
    try:
        spool_event(config.outbox.path, EVENT, fields)
        if totals is not None:
            write_atomic(path, msgspec.json.encode(totals))
    except OSError as error:
        return fail(f"{path}: {error.strerror}")
    return OK


def report(status: Status, before: Totals | None = None) -> dict[str, Any]:
    """Returns the event's fields from the daemon's status; ``before``: the totals at the last report.

    Recovery is valid readings by expected ones, 0 to 1; seconds, bytes, Cel.
    """
    now = msgspec.convert(status, Totals, from_attributes=True)
    if before is None or before.run != now.run or before.uptime_s > now.uptime_s:
        before = Totals(now.run, 0, {})
    since_s = now.uptime_s - before.uptime_s
    channels: dict[str, dict[str, Any]] = {}
    for name, counts in now.channels.items():
        earlier = before.channels.get(name, Counts())
        expected = since_s * 1000 / status.channels[name].period_ms
        recovery = min((counts.valid - earlier.valid) / expected, 1.0) if expected >= 1 else None
        channels[name] = {
            key: getattr(counts, counter) - getattr(earlier, counter) for key, counter in _COUNTS.items()
        }
        channels[name]["recovery"] = None if recovery is None else round(recovery, 4)
    as_they_are = (
        "uplink", "kafka_confirmed_ago_s", "outbox_records", "outbox_bytes", "outbox_max_bytes",
        "outbox_problem", "clock", "held", "troubles", "parked", "site_moved_m",
    )  # fmt: skip
    return {
        "since_s": since_s,
        "run_uptime_s": status.uptime_s,
        "channels": channels,
        **{key: getattr(status, key) for key in as_they_are},
        **{
            key: None if (times := getattr(now, key)) is None else times - (getattr(before, key) or 0)
            for key in _OF_MACHINE
        },
        "findings": status.wrong,
        **_machine_fields(status.machine),
    }


def _machine_fields(machine: Machine) -> dict[str, Any]:
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = platform.system()
    versions = {"fieldgate": machine.version, "python": machine.python, "kernel": platform.release()}
    return {
        "machine_uptime_s": machine.uptime_s,
        **{key: getattr(machine, key) for key in ("disk_free_bytes", "cpu_celsius", "load")},
        "versions": {**versions, "system": system},
    }
