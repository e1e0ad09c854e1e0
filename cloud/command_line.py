"""What commands share: options and types of arguments, exit codes, and how a failure is reported."""

from __future__ import annotations

import argparse
import getpass
import logging
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cloud.toml_problems import is_secret
from cloud.values import topic_prefix

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

CONFIG_PATH: Final = Path("/etc/fieldgate/gateway.toml")


class CommandError(Exception):
    """A command can't do what it is for; the message gives the reason and the remedy."""


def fail(why: Exception | str, code: int = FAILED) -> int:
    """Print on standard error why it can't be done; the exit code."""
    # A config's problems begin with their file and line, for editors.
    sys.stderr.write(f"{why}\n" if hasattr(why, "problems") else f"fieldgate: {why}\n")
    return code


def os_problem(error: OSError, path: object = None, remedy: str = "use sudo") -> str:
    """A file's name and the system's reason, with the remedy where a right is missing."""
    hint = f": {remedy}" if isinstance(error, PermissionError) else ""
    return f"{error.filename or path}: {error.strerror}{hint}"


def operator() -> str:
    """Whose name stands with what is noted: the user's, or the number of one without a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"


def without_logs(*packages: str) -> None:
    """Silence the logs of these packages: the command itself reports what goes wrong."""
    for package in packages:
        logging.getLogger(package).setLevel(logging.CRITICAL)


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config``: the gateway's file."""
    parser.add_argument(
        "-c", "--config", type=Path, default=CONFIG_PATH, metavar="FILE", help=f"default: {CONFIG_PATH}"
    )


def add_json(parser: argparse.ArgumentParser, meaning: str = "for programs") -> None:
    """``--json``: the result as JSON."""
    parser.add_argument("--json", action="store_true", help=meaning)


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """``--set``: keys put over the file's, as a list of pairs."""
    meaning = "override a key of the file, e.g. mqtt.port=1884"
    add_list(parser, "--set", "overrides", "KEY=VALUE", meaning, override)


def add_properties(parser: argparse._ActionsContainer) -> None:
    """``--prefix``, and ``--property``: what else the connection to Kafka needs, as a list of pairs."""
    parser.add_argument(
        "--prefix", type=topic_prefix, default="", metavar="TEXT", help="how its topics begin there"
    )
    meaning = "a librdkafka property, e.g. security.protocol=SSL; a secret as KEY=@FILE"
    add_list(parser, "--property", "properties", "KEY=VALUE", meaning, kafka_property)


def add_kafka(parser: argparse._ActionsContainer, meaning: str) -> None:
    """``--bootstrap-servers``, ``--cloud`` and ``--property``: a cluster, and how to log in."""
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT[,…]", help=meaning)
    parser.add_argument(
        "--cloud", type=Path, metavar="FILE", help="the cloud's config: address and login of Kafka"
    )
    add_properties(parser)


def kafka_of(arguments: argparse.Namespace) -> tuple[str | None, dict[str, str], str]:
    """The servers, None where neither option names them, librdkafka's properties, and the topics' prefix.

    Raises ConfigError, CloudError.
    """
    servers, properties, prefix = arguments.bootstrap_servers, dict(arguments.properties), arguments.prefix
    if arguments.cloud is None:
        return servers, properties, prefix
    from cloud.config import load

    kafka = load(arguments.cloud).kafka
    return servers or kafka.servers, {**kafka.properties(), **properties}, prefix or kafka.prefix


def schemas_of(arguments: argparse.Namespace) -> Mapping[int, str]:
    """The schemas of readings in Avro, by the registry that ``--cloud`` names; none without one.

    Raises ConfigError, CloudError.
    """
    if arguments.cloud is None:
        return {}
    from cloud.config import load
    from cloud.registry import Registry, RegistrySchemas

    access = load(arguments.cloud).schema_registry.access()
    return {} if access is None else RegistrySchemas(Registry(access))


def add_list(
    parser: argparse._ActionsContainer,
    option: str,
    name: str,
    metavar: str,
    meaning: str,
    kind: Callable[[str], Any] = str,
) -> None:
    """An option that may be given several times."""
    parser.add_argument(
        option, dest=name, metavar=metavar, type=kind, action="append", default=[],
        help=f"{meaning} (repeatable)",
    )  # fmt: skip


def add_timeout(
    parser: argparse._ActionsContainer, default: float = 10.0, meaning: str = "seconds to wait for Kafka"
) -> None:
    """``--timeout``, in seconds."""
    parser.add_argument(
        "--timeout", type=positive, default=default, metavar="S", help=f"{meaning} (default: {default:g})"
    )


def override(text: str) -> tuple[str, object]:
    """``key=value``: the value as TOML where it is that, else as a string."""
    key, text = pair(text)
    value: object = text
    if "\n" not in text:
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            value = tomllib.loads(f"value = {text}")["value"]
    if is_secret(key) and not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'{key} would stand in the process list: {key}={{ file = "…" }}')
    return key, value


def kafka_property(text: str) -> tuple[str, str]:
    """``key=value``; of a secret ``key=@file``, for every user of the machine can read command lines."""
    key, value = pair(text)
    if not is_secret(key):
        return key, value
    if not value.startswith("@"):
        raise argparse.ArgumentTypeError(f"{key} would stand in the process list: write {key}=@FILE")
    try:
        return key, Path(value[1:]).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        raise argparse.ArgumentTypeError(f"{key}: {value[1:]} can't be read: {error}") from error


def pair(text: str) -> tuple[str, str]:
    """``key=value``."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def positive(text: str) -> float:
    """A finite number above 0."""
    with suppress(ValueError):
        if 0 < (number := float(text)) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def count(text: str) -> int:
    """A whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def port(text: str) -> int:
    """A port number, 1 to 65535."""
    number = count(text)
    if number > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 1 to 65535")
    return number
