"""``fieldgate notify``: sends alerts to people, by ``[notify.NAME]`` of cloud.toml and with apprise."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cloud.config import CloudConfig, load
from cloud.errors import CloudError
from cloud.kafka.topic_reader import TopicReader
from cloud.notify.target import Message, Sent, Target
from cloud.values import CLOUD_CONFIG
from cloud.wire.reading_records import ALERTS_TOPIC

if TYPE_CHECKING:
    import apprise

log = logging.getLogger(__name__)

_STATE: Final = Path("/var/lib/fieldgate-cloud/notify.db")


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = "Send alerts to people, until it is stopped."
    where = "the cloud's config: where alerts and people are (default %(default)s)"
    arguments.add_argument("--cloud", type=Path, default=CLOUD_CONFIG, metavar="FILE", help=where)
    state = "what has been sent (default %(default)s)"
    arguments.add_argument("--state", type=Path, default=_STATE, metavar="FILE", help=state)
    arguments.add_argument("--test", action="store_true", help="send each target one message, and end")


def run(options: argparse.Namespace) -> int:
    """Sends alerts until it is stopped. Raises CloudError, ConfigError where it can't begin."""
    config = load(options.cloud)
    if not config.notify:
        raise CloudError(f"{options.cloud} has no [notify.NAME]: docs/examples/cloud.toml has one")
    senders = {name: Sender(name, config) for name in config.notify}
    if options.test:
        return _test(senders)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    threads = [
        threading.Thread(target=_target(name, config, senders[name], options.state).run, args=(stopping,))
        for name in config.notify
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        # Where one can't start, those that run would keep the process alive without it.
        stopping.set()
    return 0


class Sender:
    """Sends to one of apprise's URLs, read anew each time: a new password needs no restart."""

    def __init__(self, name: str, config: CloudConfig) -> None:
        """Raises CloudError where the URL can't be read or is none."""
        self._secret = config.notify[name].url
        self._open()

    def __call__(self, text: Message) -> bool:
        """Whether it was taken; the reason where it wasn't is in no log, for it may have the URL."""
        try:
            # Else a mail takes the text for HTML: no line would end, and a `<b>` in an alert be markup.
            taken = self._open().notify(title=text.title, body=text.body, body_format="text")
        except CloudError as error:
            log.warning("event=notify.no_url problem=%r", str(error))
            return False
        return bool(taken)

    def _open(self) -> apprise.Apprise:
        import apprise

        # It would write URLs, with their passwords.
        logging.getLogger("apprise").setLevel(logging.CRITICAL)
        opened = apprise.Apprise()
        if not opened.add(self._secret.reveal()):
            raise CloudError(
                f"{self._secret.where}: no URL that apprise has a service for, such as mailtos://…"
            )
        return opened


def _target(name: str, config: CloudConfig, send: Sender, state: Path) -> Target:
    properties, prefix = config.kafka.properties(), config.kafka.prefix
    # A group that the user's permissions as an analyst have.
    group = f"{prefix}{properties.get('sasl.username', 'fieldgate')}-notify-{name}"
    return Target(
        name,
        config.notify[name],
        send,
        partial(Sent, state, name),
        partial(TopicReader, config.kafka.servers, properties, group, {prefix + ALERTS_TOPIC: "latest"}),
    )


def _test(senders: dict[str, Sender]) -> int:
    failed = 0
    for name, send in senders.items():
        taken = send(Message("fieldgate: a test", f"Alerts for {name} come like this."))
        sys.stdout.write(f"{'sent' if taken else 'not taken'}  {name}\n")
        failed += not taken
    return 1 if failed else 0
