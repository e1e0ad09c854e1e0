"""``fieldgate dashboard``: pages over a lake, for this machine's browser, or for users who log in.

Needs the extra ``dashboard``.
"""

from __future__ import annotations

import argparse
import getpass
import ipaddress
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cloud.command_line import OK, fail
from cloud.config import CloudConfig, DashboardConfig
from cloud.dashboard.login import LONGEST, SHORTEST, hashed
from cloud.errors import CloudError
from cloud.lake.query import config_for, lakes_of
from cloud.wire.avro_readings import NO_SCHEMAS

if TYPE_CHECKING:
    from cloud.dashboard.live import LiveReadings

_LISTEN: Final = "127.0.0.1:8090"
_ANSWER_S: Final = 5.0
_SMALL_QUEUE: Final = {"queued.max.messages.kbytes": "8192"}
"""What Kafka's client holds that the pages haven't read: 64 MB otherwise."""


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = "Pages over the tables of a lake."
    arguments.add_argument(
        "--lake", metavar="URI", help="root of the tables (default ./lake), or a name of [lakes]"
    )
    arguments.add_argument(
        "--cloud", type=Path, metavar="FILE", help="the cloud's config: where the lake is, and who may log in"
    )
    arguments.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT", help="Kafka, for live values (default: that of --cloud)"
    )
    arguments.add_argument(
        "--checkpoints", metavar="URI", help="the jobs' (default: that of --cloud, or LAKE-checkpoints)"
    )
    arguments.add_argument("--listen", metavar="HOST:PORT", help=f"default {_LISTEN}")
    arguments.add_argument(
        "--hash-password",
        action="store_true",
        help="ask for a password, print its line for [dashboard.users.NAME]",
    )


def listen_address(text: str, config: DashboardConfig) -> tuple[str, int]:
    """Host and port: this machine's own; with users and a certificate any. Raises CloudError."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
        raise CloudError(f"--listen {text} is no HOST:PORT such as 127.0.0.1:8090")
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local and not config.users:
        raise CloudError(
            f"--listen {text}: the pages have no passwords, so only this machine may open them. Leave "
            f"127.0.0.1, and from elsewhere: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE, then "
            f"http://127.0.0.1:{port}/; or name who may log in: [dashboard.users.NAME] in cloud.toml"
        )
    if not is_local and config.certificate is None:
        raise CloudError(
            f"--listen {text}: passwords would go through the network in clear text. Name certificate and "
            "key in [dashboard] of cloud.toml, or leave 127.0.0.1 behind a proxy of yours that has them"
        )
    return host, int(port)


def _try(host: str, port: int) -> None:
    """Raises CloudError where something else listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise CloudError(f"--listen {host}:{port}: {error.strerror}; give another port") from error


def run(options: argparse.Namespace) -> int:
    """Serves until interrupted. Raises CloudError."""
    if options.hash_password:
        return _hash_password()
    named = [options.lake] if options.lake else []
    config = config_for(named, options.cloud)
    listen = options.listen or config.dashboard.listen or _LISTEN
    host, port = listen_address(listen, config.dashboard)
    _try(host, port)
    # Loaded here: a wrong option is refused at once.
    from cloud.dashboard.audience import Audience
    from cloud.dashboard.behind import behind_of
    from cloud.dashboard.server import serve

    if options.bootstrap_servers:
        kafka = config.kafka.model_copy(update={"servers": options.bootstrap_servers})
        config = config.model_copy(update={"kafka": kafka})
    lakes = lakes_of(named, config)
    audience = Audience(lakes, config.dashboard.users, _live(config))
    behind = behind_of(config, lakes, options.checkpoints)
    audience.look()

    def ready() -> None:
        sys.stdout.write(f"{'http' if config.dashboard.certificate is None else 'https'}://{listen}/\n")
        sys.stdout.flush()

    serve(audience, behind, (host, port), config, ready)
    return OK


def _live(config: CloudConfig) -> LiveReadings | None:
    """Who reads what is live; None where no Kafka is given. Raises CloudError."""
    if "servers" not in config.kafka.model_fields_set or not config.dashboard.live:
        return None
    from cloud.dashboard.live import SINCE_S, LiveReadings
    from cloud.kafka.topic_scan import Tail
    from cloud.registry import Registry, RegistrySchemas

    access = config.schema_registry.access()
    schemas = NO_SCHEMAS if access is None else RegistrySchemas(Registry(access))

    def open_tail() -> Tail:
        # Read again each time: a password may have been replaced.
        properties = {**config.kafka.properties(), **_SMALL_QUEUE}
        return Tail(config.kafka.servers, properties, SINCE_S, _ANSWER_S, schemas, config.kafka.prefix)

    return LiveReadings(open_tail)


def _hash_password() -> int:
    """Prints a line for the config; a pipe's first line is the password, a terminal is asked twice."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Once more: ") != password:
            return fail("the two differ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not SHORTEST <= len(password.encode()) <= LONGEST:
        return fail(f"a password has {SHORTEST} to {LONGEST} bytes")
    sys.stdout.write(f'password = "{hashed(password)}"\n')
    return 0
