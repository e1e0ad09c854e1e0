"""From a file to a Config: every problem at once, in the order of the lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeVar

from gateway.config import kafka_keys, placeholders, sensors
from gateway.config.board import check_emulated, check_faults, check_replay, read_board
from gateway.config.forwards import read_forwards
from gateway.config.model import (
    DEFAULT_OUTBOX,
    SHORTEST_TOKEN,
    ClockConfig,
    Config,
    GatewayConfig,
    KafkaConfig,
    MqttConfig,
    OutboxConfig,
    StatusConfig,
    UplinkConfig,
)
from gateway.config.problems import KeyPath, Problem
from gateway.config.quality import read_sections
from gateway.config.secrets import is_reference, read_secret, warn_of_readers
from gateway.config.source import Source
from gateway.config.suggestions import ONE_BRACKET, misplaced, unknown_section
from gateway.config.topic_filters import topic_root_problem
from gateway.config.units import parse_listen, parse_size
from gateway.config.validate import validate
from gateway.config.wiring import check_header

_T = TypeVar("_T")

_NOWHERE: Final = "0, 0 is a place in the sea off Ghana: is it still to be filled in?"
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)
_FLEETING: Final = ("/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm")  # noqa: S108
"""Directories that are emptied at boot, or by and by."""

SECTIONS: Final = (
    "gateway",
    "mqtt",
    "kafka",
    "uplink",
    "outbox",
    "clock",
    "status",
    "board",
    "quality",
    "sensor",
    "forward",
)


def assemble(
    path: Path, overrides: Mapping[str, object], *, at_work: bool
) -> tuple[Config | None, tuple[Problem, ...]]:
    """The config of a file, None where it has errors; and its problems, warnings included. Never raises.

    Where it is ``at_work`` a secret that can't be had is an error.
    """
    source = Source(path, at_work=at_work)
    config = _build(source, path.absolute().parent, overrides) if source.usable else None
    problems = sorted(source.problems, key=lambda problem: (problem.line is None, problem.line or 0))
    if any(problem.severity == "error" for problem in problems):
        config = None
    return config, tuple(problems)


def located(
    path: Path, overrides: Mapping[str, object], messages: Mapping[KeyPath, str]
) -> tuple[Problem, ...]:
    """Errors found elsewhere, each with the place of its key in the file or the overrides."""
    source = Source(path)
    source.override(overrides)
    before = len(source.problems)
    for key, message in messages.items():
        source.error(key, message)
    return tuple(source.problems[before:])


def _build(source: Source, base_dir: Path, overrides: Mapping[str, object]) -> Config | None:
    source.override(overrides)
    placeholders.report(source)
    for key, value in source.raw.items():
        if key not in SECTIONS:
            source.error((key,), *unknown_section(key, value, SECTIONS))

    gateway = _section(source, "gateway", GatewayConfig, _gateway_problems)
    mqtt = _section(source, "mqtt", MqttConfig, _mqtt_problems)
    kafka = _section(source, "kafka", KafkaConfig, kafka_keys.prepare)
    uplink = _section(source, "uplink", UplinkConfig, _uplink_problems)
    outbox = _section(source, "outbox", OutboxConfig, _outbox_sizes)
    status = _section(source, "status", StatusConfig, _status_address)
    board = read_board(source)
    on_pi = board is not None and board.kind == "raspberry-pi"
    clock = _section(source, "clock", ClockConfig, _default_trust("kernel" if on_pi else "always"))
    quality = read_sections(source)
    fitted = sensors.read_sensors(source, gateway, quality or {}, board)
    forwards = read_forwards(source, mqtt, gateway)
    if board is not None and fitted is not None:
        check_emulated(source, board, fitted)
        check_header(source, board, fitted)
        check_replay(source, board, fitted, base_dir)
        check_faults(source, board, fitted)

    if not (gateway and mqtt and kafka and uplink and outbox and status and board and clock):
        return None
    if fitted is None or forwards is None or quality is None:
        return None
    if not fitted and not forwards and not source.errors():
        source.warn(("sensor",), "there is no [[sensor]] and no [[forward]]: nothing will be sent")
    _outbox_place(source, base_dir / outbox.path, outbox.path)
    outbox = OutboxConfig(
        base_dir / outbox.path, outbox.max_bytes, outbox.min_free_disk, outbox.commit_interval_s
    )
    return Config(base_dir, gateway, mqtt, kafka, uplink, outbox, clock, status, board, fitted, forwards)


def _section(
    source: Source, name: str, kind: type[_T], prepare: Callable[[Source, dict[str, Any]], None]
) -> _T | None:
    """One ``[section]``; ``prepare`` checks and rewrites what TOML spells differently from the dataclass."""
    raw = source.raw.get(name, {})
    if not isinstance(raw, dict):
        tables = isinstance(raw, list) and raw and isinstance(raw[0], dict)
        source.error(
            (name,),
            ONE_BRACKET.format(name) if tables else f"must be a table: [{name}]",
        )
        return None
    rewritten = dict(raw)
    before = source.errors()
    prepare(source, rewritten)
    section = validate(kind, rewritten, (name,), source.error)
    return section if source.errors() == before else None


def _gateway_problems(source: Source, raw: dict[str, Any]) -> None:
    name = raw.get("id")
    if isinstance(name, str):
        problem = sensors.gateway_id_problem(name)
        if problem is not None:
            source.error(("gateway", "id"), problem, sensors.gateway_id_like(name))
    for given, absent in (("latitude", "longitude"), ("longitude", "latitude")):
        if given in raw and absent not in raw:
            source.error(("gateway", given), f"needs {absent} too")
    if raw.get("latitude") == 0 and raw.get("longitude") == 0:
        source.warn(("gateway", "latitude"), _NOWHERE)


def _mqtt_problems(source: Source, raw: dict[str, Any]) -> None:
    for key in ("topic_root", "home_assistant_prefix"):
        root = raw.get(key)
        problem = topic_root_problem(root) if isinstance(root, str) else None
        if problem is not None:
            source.error(("mqtt", key), problem)
    if raw.get("host") == "":
        source.error(("mqtt", "host"), "must not be empty")
    password = raw.get("password")
    if "password" in raw and "username" not in raw:
        source.error(("mqtt", "password"), "needs username too")
    if is_reference(password):
        raw["password"] = read_secret(source, ("mqtt", "password"), password)
    elif isinstance(password, str):
        warn_of_readers(source, ("mqtt", "password"), source.path)
    elif "password" in raw:
        source.error(("mqtt", "password"), 'must be a string, in "quotes", or { credential = "name" }')
        del raw["password"]


def _uplink_problems(source: Source, raw: dict[str, Any]) -> None:
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


def _outbox_sizes(source: Source, raw: dict[str, Any]) -> None:
    for key in ("max_bytes", "min_free_disk"):
        size = raw.get(key)
        if isinstance(size, str):
            try:
                raw[key] = parse_size(size)
            except ValueError as error:
                source.error(("outbox", key), f"{error}")
                del raw[key]
    if raw.get("path") == "":
        source.error(("outbox", "path"), "must not be empty")


def _outbox_place(source: Source, path: Path, written: Path) -> None:
    """Warn of a place where the outbox can't be or doesn't last; the machine may be another one."""
    key = ("outbox", "path")
    if path.parent == DEFAULT_OUTBOX.parent or source.line(key) is None:
        # The service's own directory, which systemd makes; or a demo's.
        return
    fleeting = next((place for place in _FLEETING if path.is_relative_to(place)), None)
    if fleeting is not None and path == written:
        source.warn(key, f"{fleeting} is emptied when the machine starts: use {DEFAULT_OUTBOX.parent}")
    if path.is_dir():
        source.warn(key, f"{path} is a directory: name a file in it, such as {path / 'outbox.db'}")
    elif not path.parent.is_dir() and not path.parent.parent.is_dir():
        source.warn(key, f"there is no directory {path.parent} on this machine: make it")


def _status_address(source: Source, raw: dict[str, Any]) -> None:
    # In the file there is no host and no port: they are what becomes of ``listen``.
    for key in [key for key in raw if key not in ("listen", "token")]:
        source.error(("status", key), *misplaced(key, ("listen", "token"), ("status",)))
        del raw[key]
    _status_token(source, raw)
    listen = raw.pop("listen", None)
    if listen == "":
        raw |= {"host": "", "port": 0}
    elif isinstance(listen, str):
        try:
            raw["host"], raw["port"] = parse_listen(listen)
        except ValueError as error:
            source.error(("status", "listen"), str(error))
    elif listen is not None:
        source.error(("status", "listen"), 'must be a string, in "quotes"')
    host = raw.get("host")
    if host and not _is_loopback(host) and "token" not in raw:
        source.warn(
            ("status", "listen"), "other machines see nothing of it without status.token, but for /healthz"
        )


def _status_token(source: Source, raw: dict[str, Any]) -> None:
    token = raw.get("token")
    if is_reference(token):
        raw["token"] = token = read_secret(source, ("status", "token"), token)
    elif isinstance(token, str):
        warn_of_readers(source, ("status", "token"), source.path)
    elif "token" in raw:
        source.error(("status", "token"), 'must be a string, in "quotes", or { credential = "name" }')
        del raw["token"]
    if isinstance(token, str) and (len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token)):
        source.error(
            ("status", "token"),
            f"must have at least {SHORTEST_TOKEN} characters, letters, digits, - and _ only: "
            "openssl rand -hex 16 makes one",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _default_trust(trust: str) -> Callable[[Source, dict[str, Any]], None]:
    return lambda source, raw: raw.setdefault("trust", trust) and None
