"""``fieldgate notify``: sends alerts to people, by ``[notify.NAME]`` of cloud.toml and with apprise.

Invariants: an alert is read again after a restart until it has been sent or isn't wanted; a target that can't
be reached holds back no other, since each has its own position in Kafka and its own thread. What a target has
been sent is in a file: neither a restart nor a repeated record sends it again, but for one message when the
process is killed between sending and storing.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from cloud.backoff import Backoff
from cloud.config import CloudConfig, load
from cloud.config.model import TargetConfig
from cloud.errors import CloudError
from cloud.kafka.topic_reader import KEEP_EVERY_S, Partition, TopicReader
from cloud.values import CLOUD_CONFIG
from cloud.wire.alert_records import AlertRecord
from cloud.wire.reading_records import ALERTS_TOPIC

if TYPE_CHECKING:
    import apprise


log = logging.getLogger(__name__)

_KEPT_DAYS: Final = 30


class Sent:
    """Raises CloudError where the file can't be used."""

    def __init__(self, path: Path, target: str) -> None:
        self._path, self._target = path, target
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS sent (target TEXT, id TEXT, state TEXT, at_s INTEGER, "
                "PRIMARY KEY (target, id, state)) WITHOUT ROWID"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._problem(error) from error

    def has(self, alert: str, state: str) -> bool:
        """Whether the target has been sent this alert's state."""
        try:
            found = self._database.execute(
                "SELECT 1 FROM sent WHERE target = ? AND id = ? AND state = ?", (self._target, alert, state)
            )
            return found.fetchone() is not None
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def add(self, alerts: Iterable[tuple[str, str]], now_s: int) -> None:
        """Note alerts, by id and state; durable at its return. Old ones are forgotten."""
        rows = [(self._target, *alert, now_s) for alert in alerts]
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany("INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?)", rows)
                self._database.execute("DELETE FROM sent WHERE at_s < ?", (now_s - _KEPT_DAYS * 86_400,))
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def close(self) -> None:
        """End."""
        self._database.close()

    def _problem(self, error: Exception) -> CloudError:
        return CloudError(f"{self._path}: {error}: --state names another place")


_SHOWN: Final = 50
"""Alerts in a message; the others are counted."""


class Message(NamedTuple):
    """One message to people."""

    title: str
    body: str


def wanted(alert: AlertRecord, target: TargetConfig) -> bool:
    """Whether a target is to get it at all; what late data raised is nobody's business at once."""
    return (
        not alert.historical
        and (target.cleared or alert.state == "raised")
        and (not target.severities or alert.severity in target.severities)
        and any(fnmatchcase(alert.gateway, each) for each in target.gateways)
    )


def is_quiet(target: TargetConfig, now: datetime) -> bool:
    """Whether ``now``, in the target's time zone, is in its quiet hours; they may go over midnight."""
    if target.quiet is None:
        return False
    begin, end = target.quiet
    at = now.time().replace(tzinfo=None)
    return begin <= at < end if begin <= end else at >= begin or at < end


def is_urgent(alert: AlertRecord, target: TargetConfig) -> bool:
    """Whether it is sent in quiet hours too."""
    return alert.severity in target.urgent


def message(alerts: Sequence[AlertRecord]) -> Message:
    """Alerts in one message, in the order in which they came; one that came twice stands there once."""
    each = list({(alert.id, alert.state): alert for alert in alerts}.values())
    counts = {state: sum(alert.state == state for alert in each) for state in ("raised", "cleared")}
    gateways = list(dict.fromkeys(alert.gateway for alert in each))
    where = gateways[0] if len(gateways) == 1 else f"{len(gateways)} gateways"
    what = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = [_line(alert) for alert in each[:_SHOWN]]
    if len(each) > _SHOWN:
        lines.append(f"and {len(each) - _SHOWN} more")
    return Message(f"{where}: {what}", "\n".join(lines))


def _line(alert: AlertRecord) -> str:
    at = alert.cleared_at if alert.state == "cleared" and alert.cleared_at else alert.raised_at
    channel = f" {alert.channel}" if alert.channel else ""
    what = f"{alert.gateway}{channel} {alert.rule}, {_minute(at)}"
    return f"{alert.state} {alert.severity}: {what}: {alert.detail}"


def _minute(text: str) -> str:
    return f"{text[:10]} {text[11:16]} UTC"


_TURN_S: Final = 0.5
_AGAIN_S: Final = (2.0, 300.0)
_MOST_HELD: Final = 10_000

Send = Callable[[Message], bool]
"""Sends a message to people; whether it was taken."""


class Target:
    """One target. ``run`` is a thread's; it ends with ``stopping``."""

    def __init__(
        self,
        name: str,
        config: TargetConfig,
        send: Send,
        sent: Callable[[], Sent],
        reader: Callable[[], TopicReader],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._config = config
        self._send = send
        self._open_sent = sent
        self._open_reader = reader
        self._now = now
        self._monotonic = monotonic
        self._zone = ZoneInfo(config.time_zone)
        self._held: list[tuple[Partition, int, AlertRecord]] = []
        self._read_to: dict[Partition, int] = {}
        self._due_s: float | None = None
        self._kept_at_s = 0.0
        self._backoff = Backoff(*_AGAIN_S)

    def run(self, stopping: threading.Event) -> None:
        """Until it is stopped; what fails is tried again, later and later."""
        again = Backoff(*_AGAIN_S)
        while not stopping.is_set():
            self._held.clear()
            self._read_to.clear()
            self._due_s = None
            try:
                sent = self._open_sent()
                try:
                    reader = self._open_reader()
                    try:
                        # Where a new target begins is kept: else the start after a crash would begin later.
                        self._read_to = dict(reader.begun)
                        while not stopping.is_set():
                            is_kept = reader.begun.keys() <= reader.committed.keys()
                            self.turn(reader, sent)
                            if not is_kept and reader.begun.keys() <= reader.committed.keys():
                                log.info("event=notify.reads target=%s", self.name)
                                again.reset()
                        reader.flush()
                    finally:
                        reader.close()
                finally:
                    sent.close()
            except CloudError as error:
                log.warning("event=notify.waits target=%s problem=%r", self.name, str(error))
                stopping.wait(again.next())
            except Exception:
                # The process runs on for the other targets, so nobody would see that this one has ended.
                log.exception("event=notify.defect target=%s", self.name)
                stopping.wait(again.next())

    def turn(self, reader: TopicReader, sent: Sent) -> None:
        """Read what there is for half a second, and send what is due."""
        until_s = self._monotonic() + _TURN_S
        while len(self._held) < _MOST_HELD and (left_s := until_s - self._monotonic()) > 0:
            record = reader.read(left_s)
            if record is None:
                continue
            self._read_to[record.place] = record.offset + 1
            alert = parse_alert(record.value)
            if alert is None or not wanted(alert, self._config) or sent.has(alert.id, alert.state):
                continue
            self._held.append((record.place, record.offset, alert))
            if self._due_s is None:
                self._due_s = self._monotonic() + self._config.group_s
        if self._due_s is not None and self._monotonic() >= self._due_s:
            self._send_due(sent)
        positions = dict(self._read_to)
        for place, offset, _ in self._held:
            positions[place] = min(positions[place], offset)
        moved = any(reader.committed.get(place) != at for place, at in positions.items())
        if moved or self._monotonic() >= self._kept_at_s + KEEP_EVERY_S:
            self._kept_at_s = self._monotonic()
            reader.commit(positions)

    def _send_due(self, sent: Sent) -> None:
        quiet = is_quiet(self._config, self._now().astimezone(self._zone))
        due = [each for each in self._held if not quiet or is_urgent(each[2], self._config)]
        if due:
            alerts = [alert for _, _, alert in due]
            if not self._send(message(alerts)):
                self._due_s = self._monotonic() + (delay_s := self._backoff.next())
                log.warning(
                    "event=notify.refused target=%s alerts=%d again_s=%g", self.name, len(due), delay_s
                )
                return
            self._backoff.reset()
            sent.add(((alert.id, alert.state) for alert in alerts), int(self._now().timestamp()))
            log.info("event=notify.sent target=%s alerts=%d", self.name, len(due))
            self._held = [each for each in self._held if each not in due]
        # The rest is looked at again in each group's time, in quiet hours too.
        self._due_s = self._monotonic() + self._config.group_s if self._held else None


def parse_alert(value: bytes) -> AlertRecord | None:
    """An alert's record, None where it is none; fields that it has beyond those known don't matter."""
    try:
        return msgspec.json.decode(value, type=AlertRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        log.warning("event=notify.no_alert bytes=%d", len(value))
        return None


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
