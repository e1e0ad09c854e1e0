"""From a file to a Config: every problem at once, in the order of the lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from cloud.toml_problems import ConfigError, KeyPath, Problem, show, unknown_key
from gateway.config import kafka
from gateway.config.bridges.reading import check_http, check_mqtt_proxy, read_downlinks, read_forwards
from gateway.config.calibration import today
from gateway.config.model import (
    ARRAYS,
    DEFAULT_OUTBOX,
    SECTIONS,
    Config,
    GatewayConfig,
    KafkaConfig,
    OutboxConfig,
    SiteConfig,
    StatusConfig,
)
from gateway.config.named_files import opens, resolve
from gateway.config.outputs import check_commands, read_actuators, read_interlocks
from gateway.config.quality import read_sections
from gateway.config.quantities import read_quantities
from gateway.config.sensors import read_sensors
from gateway.config.source import Source
from gateway.config.values import is_loopback
from gateway.config.wiring import check_emulated, check_faults, check_header, check_replay, read_board

_T = TypeVar("_T")
_Prepare = Callable[[Source, dict[str, Any]], None]

_AT_ZERO: Final = "0, 0 is a place in the sea off Ghana: is it still to be filled in?"
_EMPTIED: Final = ("/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm")  # noqa: S108
"""Directories that are emptied at boot, or from time to time."""
_ALL: Final = (*SECTIONS, "board", "quality", "sensor", *ARRAYS)


def load(
    path: Path, overrides: Mapping[str, object] = {}, *, at_work: bool = True, starting: bool = False
) -> Config:
    """The config of a file, with ``overrides`` (dotted keys) put over it. Raises ConfigError.

    ``starting``: not for errors that the daemon starts with, such as a missing password; the config has them.
    """
    config, problems = check(path, overrides, at_work=at_work)
    if config is None or (config.problems and at_work and not starting):
        raise ConfigError(problems)
    return config


def check(
    path: Path, overrides: Mapping[str, object] = {}, *, at_work: bool = False
) -> tuple[Config | None, tuple[Problem, ...]]:
    """The config of a file, None where it has errors; and its problems, warnings included. Never raises.

    There is a config in spite of errors that the daemon ``starts`` with. Secrets that can't be read are such
    errors where the config is ``at_work``, or where this process can say that the service can't; else
    warnings.
    """
    source = Source(path, at_work=at_work)
    config = _read(source, path.absolute().parent, overrides) if source.usable else None
    problems = sorted(source.problems, key=lambda problem: (problem.line is None, problem.line or 0))
    errors = tuple(problem for problem in problems if problem.severity == "error")
    if config is None or not all(problem.starts for problem in errors):
        return None, tuple(problems)
    return dataclasses.replace(config, problems=errors, files=source.files), tuple(problems)


def located(
    path: Path, overrides: Mapping[str, object], messages: Mapping[KeyPath, str]
) -> tuple[Problem, ...]:
    """Errors found elsewhere, each with the place of its key in the file or the overrides. Never raises."""
    source = Source(path)
    source.override(overrides)
    before = len(source.problems)
    for key, message in messages.items():
        source.error(key, message)
    return tuple(source.problems[before:])


def _read(source: Source, base_dir: Path, overrides: Mapping[str, object]) -> Config | None:
    source.override(overrides)
    source.report_placeholders()
    for key in source.raw:
        if key not in _ALL:
            source.error((key,), *unknown_key(key, _ALL, what="section"))

    board = read_board(source)
    on_pi = board is not None and board.kind == "raspberry-pi"
    sections: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        prepare = partial(_set_trust, on_pi) if name == "clock" else _PREPARE.get(name)
        sections[name] = _section(source, name, kind, prepare)
    sections |= _places(source, sections["gateway"], sections["site"])
    for name, check_section in _CHECKS.items():
        if sections[name] is not None:
            check_section(source, sections[name])
    gateway, mqtt = sections["gateway"], sections["mqtt"]
    source.quantities = read_quantities(source)
    quality = read_sections(source)
    fitted = read_sensors(source, gateway, quality or {}, board)
    actuators = read_actuators(source)
    interlocks = read_interlocks(source, actuators, fitted)
    forwards = read_forwards(source, mqtt, gateway, sections["kafka"])
    own = f"{mqtt.topic_root}/#" if mqtt is not None else None
    downlinks = read_downlinks(source, own, forwards)
    if board is not None and fitted is not None:
        check_emulated(source, board, fitted)
        check_header(source, board, fitted, actuators)
        check_replay(source, board, fitted, base_dir)
        check_faults(source, board, fitted)
    if None in sections.values() or board is None or fitted is None or quality is None:
        return None
    config = Config(
        base_dir, **sections, board=board, sensors=fitted, forwards=forwards, downlinks=downlinks,
        actuators=actuators, interlocks=interlocks, quantities=source.quantities,
    )  # fmt: skip
    _check_together(source, config)
    return config


def _check_together(source: Source, config: Config) -> None:
    """What sections that are right for themselves say of one another."""
    check_commands(source, config.commands, config.actuators, config.sensors)
    day = today() if config.board.kind == "raspberry-pi" else None
    if day is not None and config.site.valid_from is not None and config.site.valid_from > day:
        source.warn(("site", "valid_from"), f"{config.site.valid_from} lies in the future")
    ways = (config.sensors, config.forwards, config.downlinks, config.http.listen, config.mqtt_proxy.listen)
    if not any(ways) and all(problem.severity == "warning" for problem in source.problems):
        source.warn(("sensor",), "there is no [[sensor]] and no [[forward]]: nothing will be sent")
    if config.mqtt_proxy.listen and not config.forwards:
        source.warn(("mqtt_proxy", "listen"), "there is no [[forward]]: all that comes is a dead letter")
    kafka.check_lengths(source, config)


def _section(source: Source, name: str, kind: type[_T], prepare: _Prepare | None) -> _T | None:
    """One ``[section]``; ``prepare`` compares keys, and reads secrets that the file only names."""
    raw = source.table(name)
    if raw is None:
        return None
    given = dict(raw)
    before = source.errors()
    if prepare is not None:
        prepare(source, given)
    section = source.model(kind, given, (name,))
    return section if source.errors() == before else None


def _places(source: Source, gateway: GatewayConfig | None, site: SiteConfig | None) -> dict[str, Any]:
    """``[gateway]`` and ``[site]``: what either has of the position the other one has too."""
    if gateway is None or site is None:
        return {}
    both: dict[str, Any] = {}
    for key in ("latitude", "longitude", "elevation_m"):
        own, of_site = getattr(gateway, key), getattr(site, key)
        if own is not None and of_site is not None and own != of_site:
            source.error(("site", key), f"is {show(own)} in [gateway]: give it in one of them")
        if (known := of_site if own is None else own) is not None:
            both[key] = known
    if site != SiteConfig():
        site = dataclasses.replace(site, **both)
        if site.position is None:
            source.error(("site",), "needs latitude and longitude, here or in [gateway]")
    return {"gateway": dataclasses.replace(gateway, **both), "site": site}


def _check_position(section: str, source: Source, raw: dict[str, Any]) -> None:
    for given, absent in (("latitude", "longitude"), ("longitude", "latitude")):
        if given in raw and absent not in raw:
            source.error((section, given), f"needs {absent} too")
    if raw.get("latitude") == 0 and raw.get("longitude") == 0:
        source.warn((section, "latitude"), _AT_ZERO)


def _read_gateway(source: Source, raw: dict[str, Any]) -> None:
    _check_position("gateway", source, raw)
    resolve(source, ("gateway", "identity_key"), raw)


def _read_password(source: Source, raw: dict[str, Any]) -> None:
    if "password" in raw and "username" not in raw:
        source.error(("mqtt", "password"), "needs username too")
    resolve(source, ("mqtt", "password"), raw)


def _check_uplink(source: Source, raw: dict[str, Any]) -> None:
    if "batch_s" in raw and raw.get("mode", "live") == "live":
        source.warn(("uplink", "batch_s"), 'counts only with mode = "metered"')
    command, reset_h, reboot_h = (
        raw.get(key) for key in ("reset_command", "reset_after_h", "reboot_after_h")
    )
    if "reset_after_h" in raw and not command:
        source.error(
            ("uplink", "reset_after_h"), 'needs reset_command, such as ["mmcli", "-m", "any", "--reset"]'
        )
    if isinstance(command, list) and command and not str(command[0]).startswith("/"):
        source.warn(
            ("uplink", "reset_command"), "is found by root's PATH: write where it is, as in /usr/bin/mmcli"
        )
    if isinstance(reset_h, int | float) and isinstance(reboot_h, int | float) and reboot_h <= reset_h:
        source.error(("uplink", "reboot_after_h"), "must be longer than reset_after_h: first the modem")


def _check_outbox(source: Source, outbox: OutboxConfig) -> None:
    """Warn of a place where the outbox can't be or doesn't last; the machine may be another one."""
    key, path = ("outbox", "path"), outbox.path
    if path.parent == DEFAULT_OUTBOX.parent or source.line(key) is None:
        # The service's own directory, which systemd makes; or a demo's.
        return
    emptied = next((place for place in _EMPTIED if path.is_relative_to(place)), None)
    if emptied is not None and str(path) == source.raw["outbox"]["path"]:
        source.warn(key, f"{emptied} is emptied when the machine starts: use {DEFAULT_OUTBOX.parent}")
    if path.is_dir():
        source.warn(key, f"{path} is a directory: name a file in it, such as {path / 'outbox.db'}")
    elif not path.parent.is_dir() and not path.parent.parent.is_dir():
        source.warn(key, f"there is no directory {path.parent} on this machine: make it")


def _check_registry(source: Source, given: KafkaConfig) -> None:
    if given.schema_registry_ca is not None:
        opens(source, ("kafka", "schema_registry_ca"), given.schema_registry_ca)


def _set_trust(on_pi: bool, _source: Source, raw: dict[str, Any]) -> None:
    """A Raspberry Pi has no clock of its own."""
    raw.setdefault("trust", "kernel" if on_pi else "always")


def _check_token(source: Source, given: StatusConfig) -> None:
    if given.address and not is_loopback(given.address[0]) and "token" not in source.raw.get("status", ()):
        source.warn(
            ("status", "listen"), "other machines see nothing of it without status.token, but for /healthz"
        )


_PREPARE: Final[Mapping[str, _Prepare]] = {
    "gateway": _read_gateway,
    "site": partial(_check_position, "site"),
    "mqtt": _read_password,
    "kafka": kafka.prepare,
    "uplink": _check_uplink,
    "status": lambda source, raw: resolve(source, ("status", "token"), raw),
}
"""What is done with a section's raw keys before it is validated."""
_CHECKS: Final[Mapping[str, Callable[[Source, Any], None]]] = {
    "kafka": _check_registry,
    "outbox": _check_outbox,
    "status": _check_token,
    "http": check_http,
    "mqtt_proxy": check_mqtt_proxy,
}
"""What is looked at in a section that is right for itself."""
