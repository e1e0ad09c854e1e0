"""``fieldgate self-report``: how the mast is, as an event of the gateway and a line for the journal.

Run each day by fieldgate-report.timer. It requests the daemon's status and leaves the event in the spool for
it, so that an uplink that is down only delays it. Where the daemon doesn't respond, it reports that.

Counts are since the last report, where that was of the same run of the daemon, else since the run began.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from gateway.commands.arguments import OK, add_config, fail
from gateway.config import Config, ConfigError, check
from gateway.reporting.event_spool import NotSpooled, spool_event
from gateway.status.client import NoStatus, fetch
from gateway.system.atomic_file import write_atomic
from gateway.system.host import vitals

EVENT: Final = "report"
_COUNTS: Final = {"seq": "sampled", "valid": "valid", "forwarded": "forwarded", "dropped": "dropped"}
"""Keys of a channel in the status, and what the report calls them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config."""
    add_config(parser)


def run(arguments: argparse.Namespace) -> int:
    """Report once. Raises ConfigError."""
    config, problems = check(arguments.config)
    if config is None:
        raise ConfigError(problems)
    return make_report(config, fetch)


def make_report(config: Config, fetch_status: Callable[[str], Mapping[str, Any]]) -> int:
    """Report once; the exit code. ``fetch_status`` raises NoStatus."""
    remembered = config.outbox.path.with_name(config.outbox.path.name + ".report")
    try:
        status = fetch_status(config.status.listen)
    except NoStatus as error:
        fields = unanswered(config, str(error))
    else:
        fields = report(status, _read(remembered))
    print(line(fields))
    try:
        spool_event(config.outbox.path, EVENT, fields)
        if "run_uptime_s" in fields:
            write_atomic(remembered, json.dumps(_totals(status)))
    except NotSpooled as error:
        return fail(error)
    except OSError as error:
        return fail(f"{remembered}: {error.strerror}")
    return OK


def report(status: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The event's fields from the daemon's status; ``before``: the totals at the last report, or nothing.

    Recovery is valid readings by expected ones, 0 to 1; seconds, bytes, Cel.
    """
    same = before.get("run") == status["run"] and before["uptime_s"] <= status["uptime_s"]
    since_s = status["uptime_s"] - (before["uptime_s"] if same else 0)
    earlier = before["channels"] if same else {}
    channels = {}
    for name, now in _totals(status)["channels"].items():
        counts = {key: now[key] - earlier.get(name, {}).get(key, 0) for key in _COUNTS.values()}
        expected = since_s * 1000 / status["channels"][name]["period_ms"]
        recovery = min(counts.pop("valid") / expected, 1.0) if expected >= 1 else None
        channels[name] = {**counts, "recovery": None if recovery is None else round(recovery, 4)}
    machine = status["machine"]
    return {
        "since_s": since_s,
        "run_uptime_s": status["uptime_s"],
        "machine_uptime_s": machine["uptime_s"],
        "channels": channels,
        "uplink": status["uplink"],
        "kafka_confirmed_ago_s": status["kafka_confirmed_ago_s"],
        "outbox_records": status["outbox_records"],
        "outbox_bytes": status["outbox_bytes"],
        "outbox_max_bytes": status["outbox_max_bytes"],
        "outbox_problem": status["outbox_problem"],
        "disk_free_bytes": machine["disk_free_bytes"],
        "clock": status["clock"],
        "held": status["held"],
        "cpu_celsius": machine["cpu_celsius"],
        "load": machine["load"],
        "troubles": dict(status["troubles"]),
        "versions": {"fieldgate": machine["version"], "python": machine["python"], **_system()},
    }


def unanswered(config: Config, why: str) -> dict[str, Any]:
    """The fields of a report without a daemon."""
    machine = vitals(config.outbox.path)
    return {
        "daemon": why,
        "machine_uptime_s": machine["uptime_s"],
        "disk_free_bytes": machine["disk_free_bytes"],
        "cpu_celsius": machine["cpu_celsius"],
        "load": machine["load"],
        "versions": {"fieldgate": machine["version"], "python": machine["python"], **_system()},
    }


def line(report: Mapping[str, Any]) -> str:
    """The report for the journal, on one line; what is unknown is left out."""
    facts: dict[str, object] = {"event": "mast.report"}
    if "daemon" in report:
        facts["daemon"] = json.dumps(report["daemon"], ensure_ascii=False)
    else:
        channels = report["channels"]
        worst = min(channels, key=lambda name: channels[name]["recovery"] or 0.0, default=None)
        facts |= {
            "hours": round(report["since_s"] / 3600, 1),
            **{
                key: sum(each[key] for each in channels.values())
                for key in ("sampled", "forwarded", "dropped")
            },
            **({"worst": worst, "recovery": channels[worst]["recovery"]} if worst is not None else {}),
            "uplink": report["uplink"],
            "outbox": f"{report['outbox_bytes'] / report['outbox_max_bytes']:.0%}",
            "outbox_records": report["outbox_records"],
            "clock": report["clock"],
        }
    free, celsius = report["disk_free_bytes"], report["cpu_celsius"]
    facts |= {
        **({} if free is None else {"disk_free_mb": free // 1_000_000}),
        **({} if celsius is None else {"cpu_celsius": round(celsius, 1)}),
        "version": report["versions"]["fieldgate"],
    }
    return " ".join(f"{key}={value}" for key, value in facts.items())


def _totals(status: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run": status["run"],
        "uptime_s": status["uptime_s"],
        "channels": {
            name: {called: channel[key] for key, called in _COUNTS.items()}
            for name, channel in status["channels"].items()
        },
    }


def _read(path: Path) -> Mapping[str, Any]:
    try:
        totals = json.loads(path.read_text())
        channels = totals["channels"].values()
        if totals["uptime_s"] < 0 or any(each[key] < 0 for each in channels for key in _COUNTS.values()):
            raise ValueError("a count is below 0")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        sys.stderr.write(f"{path}: {error}: counting since the daemon's start\n")
        return {}
    return dict(totals)


def _system() -> dict[str, str]:
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = platform.system()
    return {"kernel": platform.release(), "system": system}
