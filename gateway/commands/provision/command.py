"""``fieldgate provision``: what Kafka and Mosquitto need before a gateway uses them.

The mast's broker and devices are provisioned here, Kafka from the operator's desk.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cloud.command_line import add_config, add_list, port
from cloud.operate import provision
from cloud.operate.provision import Needs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``topics``, ``schemas``, ``users``, ``gateway``, ``mosquitto`` and ``devices``."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    provision.add_arguments(what)
    _add_mosquitto(
        what.add_parser(
            "mosquitto", help="this machine's broker: listeners, limits, users; starts without a network"
        )
    )
    _add_devices(what.add_parser("devices", help="users of [mqtt_proxy] with their topics, tokens of [http]"))


def run(arguments: argparse.Namespace) -> int:
    """Provision one of them."""
    if arguments.what == "devices":
        from gateway.commands.provision import devices

        return devices.run(arguments)
    if arguments.what == "mosquitto":
        from gateway.commands.provision import mosquitto

        return mosquitto.run(arguments)
    path: Path | None = getattr(arguments, "config", None)
    return provision.run(arguments, None if path is None else _needs(path))


def _needs(path: Path) -> Needs:
    """What a gateway's config needs of Kafka. Raises ConfigError."""
    from gateway.config import load
    from gateway.config.kafka import open_templates, wanted_topics

    config = load(path)
    return Needs(
        config.kafka.bootstrap_servers,
        config.kafka.properties,
        config.kafka.prefix,
        config.kafka.topic,
        frozenset(wanted_topics(config)),
        tuple(open_templates(config)),
        tuple(each.topic for each in config.downlinks),
    )


def _add_mosquitto(mosquitto: argparse.ArgumentParser) -> None:
    mosquitto.add_argument(
        "--port", type=port, default=1883, metavar="PORT", help="of this machine's programs (default: 1883)"
    )
    mosquitto.add_argument(
        "--lan", metavar="[ADDRESS:]PORT", help="let devices of the network in, with passwords, e.g. 1884"
    )
    mosquitto.add_argument(
        "--tls", action="store_true", help="encrypt that, with a certificate that is made, or renewed"
    )
    meaning = "only renew that certificate where it ends soon, and have the broker read it: for a timer"
    mosquitto.add_argument("--renew", action="store_true", help=meaning)
    meaning = "under what else devices reach this machine than its names and addresses now"
    add_list(mosquitto, "--name", "names", "HOST", meaning)
    meaning = "a device's user and its topics (default: devices/NAME/#)"
    add_list(mosquitto, "--device", "devices", "NAME[=FILTER,…]", meaning)
    mosquitto.add_argument(
        "--passwords", type=Path, metavar="FILE", help="write new passwords there, mode 0600; else shown once"
    )
    mosquitto.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="of an image being made (default: /)"
    )
    mosquitto.add_argument("--dry-run", action="store_true", help="only show what would change")


def _add_devices(devices: argparse.ArgumentParser) -> None:
    add_config(devices)
    meaning = "a user of [mqtt_proxy] and its topics (default: devices/NAME/#)"
    add_list(devices, "--device", "devices", "NAME[=FILTER,…]", meaning)
    add_list(devices, "--token", "tokens", "NAME", "a device of [http]")
    add_list(devices, "--rotate", "rotate", "NAME", "a new password and a new token, as far as it has them")
    add_list(devices, "--remove", "remove", "NAME", "take a device out; who isn't named stays")
    devices.add_argument(
        "--passwords", type=Path, metavar="FILE",
        help="write new passwords and tokens there, mode 0600; else shown once",
    )  # fmt: skip
    devices.add_argument("--dry-run", action="store_true", help="only show what would change")
