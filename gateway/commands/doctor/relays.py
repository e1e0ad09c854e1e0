"""Relays: what the daemon has made of them, or without one whether their pins are free. None is switched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drivers.interface import Board, DriverError
from gateway.commands.doctor.findings import Finding
from gateway.config.outputs import ActuatorConfig, condition
from gateway.control.interlocks import UNSURE


def switched(relays: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Reads the daemon's status."""
    for name, relay in relays.items():
        if relay["problem"] is not None:
            yield Finding(
                "relay", "error", f"{name}: {relay['problem']}", "the daemon tries again each second"
            )
            continue
        unsure = [rule["when"] for rule in relay["interlocks"] if rule["state"] in UNSURE]
        found = f"{name}: {relay['state']} ({relay['why']})"
        if unsure:
            channels = ", ".join(dict.fromkeys(condition(when).channel for when in unsure))
            yield Finding("relay", "warning", found, f"safe until there is a good reading of {channels}")
        else:
            yield Finding("relay", "ok", found)


def claimable(actuators: Sequence[ActuatorConfig], board: Board) -> Iterator[Finding]:
    """Whether the daemon will get their pins."""
    for actuator in actuators:
        pin = f"{actuator.name}: BCM pin {actuator.pin}"
        try:
            user = board.pin_user(actuator.pin)
        except DriverError as error:
            yield Finding("relay", "error", f"{actuator.name}: {error}")
            continue
        if user is None:
            yield Finding("relay", "ok", f"{pin} is free")
        else:
            remedy = "use another pin, stop that program, or switch the function off in config.txt"
            yield Finding("relay", "error", f"{pin} is in use by {user}", remedy)
