"""``[http]`` and ``[mqtt_proxy]``: what may listen where, and the files that say who may connect."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from gateway.config.bridges import http, mqtt_proxy
from gateway.config.bridges.model import HttpConfig, MqttProxyConfig
from gateway.config.named_files import opens
from gateway.config.source import Source
from gateway.config.values import is_loopback

_CERTIFICATE, _KEY = "certificate", "key"
_Given = TypeVar("_Given", HttpConfig, MqttProxyConfig)
_Readers = Mapping[str, Callable[[Path], object]]
_HTTP: Final[_Readers] = {"tokens": http.read_tokens}
_PROXY: Final[_Readers] = {"passwords": mqtt_proxy.read_users, "access": mqtt_proxy.read_access}


def read_http(source: Source, given: HttpConfig, base_dir: Path) -> HttpConfig:
    """The section with its files' places; what would let others in, or read along, is an error."""
    if _lets_others_in(given):
        if given.tokens is None:
            source.error(("http", "listen"), "lets other machines in: http.tokens must say which")
        if given.certificate is None:
            source.error(
                ("http", "listen"),
                "tokens would cross the network in the clear: give http.certificate and key",
            )
    return _with_files(source, "http", given, base_dir, _HTTP)


def read_mqtt_proxy(source: Source, given: MqttProxyConfig, base_dir: Path) -> MqttProxyConfig:
    """Checks what ``read_http`` checks."""
    if _lets_others_in(given):
        if given.passwords is None:
            source.error(
                ("mqtt_proxy", "listen"),
                "lets other machines in: mqtt_proxy.passwords and access must say which",
            )
        if given.certificate is None and not given.plain:
            source.error(
                ("mqtt_proxy", "listen"),
                "passwords would cross the network in the clear: give mqtt_proxy.certificate and key, or set "
                "plain = true on a network of the mast's own",
            )
    _require_both(source, "mqtt_proxy", given, "passwords", "access")
    return _with_files(source, "mqtt_proxy", given, base_dir, _PROXY)


def _lets_others_in(given: HttpConfig | MqttProxyConfig) -> bool:
    return given.address is not None and not is_loopback(given.address[0])


def _require_both(source: Source, section: str, given: object, one: str, other: str) -> None:
    if (getattr(given, one) is None) != (getattr(given, other) is None):
        absent = one if getattr(given, one) is None else other
        source.error((section, absent), f"is required: {one} and {other} go together")


def _with_files(source: Source, section: str, given: _Given, base_dir: Path, readers: _Readers) -> _Given:
    _require_both(source, section, given, _CERTIFICATE, _KEY)
    files = {
        name: base_dir / file
        for name in (*readers, _CERTIFICATE, _KEY)
        if (file := getattr(given, name)) is not None
    }
    if given.address is not None:
        for name, file in files.items():
            if opens(source, (section, name), file) and name in readers:
                try:
                    readers[name](file)
                except (OSError, ValueError) as error:
                    source.error((section, name), str(error), starts=True)
    return dataclasses.replace(given, **files)
