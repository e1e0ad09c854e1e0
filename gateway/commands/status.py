"""``fieldgate status``: what the running daemon does; or by a lake's tables what became of all readings."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from cloud.command_line import CONFIG_PATH, OK, CommandError, add_json
from cloud.values import duration_text
from gateway.commands.doctor.findings import SITE_MOVED, SITE_REMEDY, SLOW_UPLINK, TAKEN_OVER
from gateway.commands.doctor.traffic import counts_text, downlink_text, http_text
from gateway.commands.reading_rows import channel_table, channels_of
from gateway.status.client import NoStatus, fetch, listen_address


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the daemon's config, and the lake."""
    meaning = f"where [status] listen stands (default: {CONFIG_PATH})"
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help=meaning)
    add_json(parser)
    accounts = parser.add_argument_group("what became of everything sampled, by the tables of a lake")
    accounts.add_argument("--lake", metavar="URI", help="root of the tables, or a name of [lakes]")
    accounts.add_argument("--cloud", type=Path, metavar="FILE", help="the cloud's config: where the lake is")
    accounts.add_argument("--gateway", metavar="ID", help="this one only")


def run(arguments: argparse.Namespace) -> int:
    """Print the status. Raises CommandError where the daemon's can't be fetched."""
    if arguments.lake is not None or arguments.cloud is not None:
        if find_spec("duckdb") is None:
            raise CommandError("a lake's accounts need the extra 'analyst': pip install 'fieldgate[analyst]'")
        from cloud.operate import accounts

        return accounts.run(arguments)
    if arguments.gateway:
        raise CommandError("--gateway needs --lake or --cloud")
    why_default = ""
    try:
        listen, why_default = listen_address(
            arguments.config or CONFIG_PATH, chosen=arguments.config is not None
        )
        status = fetch(listen)
    except NoStatus as error:
        raise CommandError(f"{error}{why_default}") from error
    if arguments.json:
        print(json.dumps(status, indent=2))
        return OK
    console = Console()
    # Brackets are those of the config's sections.
    console.print(_summary(status), highlight=False, markup=False)
    console.print(channel_table(channels_of(status), datetime.now(UTC)))
    return OK


def _traffic(status: Mapping[str, Any]) -> str:
    """What passes between Kafka and local devices, a line each."""
    text = ""
    commands, downlinks = status.get("commands") or {}, status.get("downlinks") or {}
    for name, each in (("commands", commands), ("downlinks", downlinks)):
        if each.get("problem"):
            text += f"\n{name} can't be read: {each['problem']}"
    if commands.get("results"):
        text += f"\ncommands: {counts_text(commands['results'])}"
    for topic, counts in (downlinks.get("topics") or {}).items():
        text += f"\ndownlink {downlink_text(topic, counts)}"
    if (http := status.get("http") or {}).get("port") is not None:
        text += f"\nhttp {http_text(http)}"
    return text


def _summary(status: Mapping[str, Any]) -> str:
    broker = "connected" if status.get("mqtt_connected") else "not connected"
    dropped = status.get("broker_dropped")
    held, unsynced = status.get("held"), status.get("clock") == "unsynced"
    proven = " (proves itself)" if status.get("run_proves_itself") else ""
    clock = ""
    if status.get("clock_given") and not held:
        clock = ", clock as it was given"
    elif held or unsynced:
        clock = f", clock unsynced: {held} readings wait for it (fieldgate doctor has what to do)"
    problem = ""
    if status.get("outbox_problem"):
        records, size = status.get("outbox_memory_records"), status.get("outbox_memory_bytes")
        problem = f"\noutbox can't be written, {records} of its records are in memory only ({size} bytes): "
        problem += str(status["outbox_problem"])
    said = [each["problem"] for each in (status.get("parked") or {}).values()]
    if status.get("kafka_problem") and status["kafka_problem"] not in said:
        kind = status.get("kafka_refusal") or "unreachable"
        problem += f"\nKafka ({kind}): {status['kafka_problem']}"
    if status.get("kafka_late_s"):
        problem += f"\nKafka confirms after {status['kafka_late_s']:g} s: {SLOW_UPLINK}"
    for topic, parked in (status.get("parked") or {}).items():
        problem += (
            f"\nKafka takes nothing for {topic}, for {duration_text(parked['for_s'])}: {parked['problem']}"
        )
    for name, relay in (status.get("relays") or {}).items():
        problem += f"\nrelay {name}: {relay['state']} ({relay['problem'] or relay['why']})"
    problem += _traffic(status) + (f"\n{TAKEN_OVER}" if status.get("mqtt_taken_over") else "")
    if status.get("site_moved_m") is not None:
        problem += f"\n{SITE_MOVED.format(status['site_moved_m'])}: {SITE_REMEDY}"
    for each in (status.get("config") or {}).get("problems", ()):
        problem += f"\nconfig: {each}"
    return (
        f"{status.get('gateway')} run {status.get('run')}{proven}: {status.get('state')}, "
        f"uplink {status.get('uplink')}, local broker {broker}{clock}\n"
        f"sampled {status.get('sampled')}  confirmed {status.get('confirmed')}  "
        f"in flight {status.get('in_flight')}  outbox {status.get('outbox_records')} records, "
        f"{status.get('outbox_bytes')} bytes  dead letters {status.get('dead_letters')}  "
        f"dropped by the local broker {'unknown' if dropped is None else dropped}{problem}"
    )
