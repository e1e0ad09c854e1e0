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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, time as time_of_day, timedelta
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
from cloud.kafka.readers import KEEP_EVERY_S, Partition, TopicReader, TopicRecord
from cloud.remedies import remedies
from cloud.values import CLOUD_CONFIG
from cloud.wire.alert_records import AlertRecord
from cloud.wire.reading_records import ALERTS_TOPIC

if TYPE_CHECKING:
    import apprise

    from cloud.lake.acknowledgements import Acknowledgement

log = logging.getLogger(__name__)

_KEPT_DAYS: Final = 30


class Sent:
    """Raises CloudError where the file can't be used."""

    def __init__(self, path: Path, target: str) -> None:
        self._path, self._target = path, target
        with self._usable():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS sent (target TEXT, id TEXT, state TEXT, at_s INTEGER, "
                "PRIMARY KEY (target, id, state)) WITHOUT ROWID"
            )

    def has(self, alert: str, state: str) -> bool:
        """Whether the target has been sent this alert's state."""
        sql = "SELECT 1 FROM sent WHERE target = ? AND id = ? AND state = ?"
        with self._usable():
            return self._database.execute(sql, (self._target, alert, state)).fetchone() is not None

    def add(self, alerts: Iterable[tuple[str, str]], now_s: int) -> None:
        """Note alerts, by id and state; durable at its return. Old ones are forgotten."""
        rows = [(self._target, *alert, now_s) for alert in alerts]
        with self._usable(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?)", rows)
            self._database.execute("DELETE FROM sent WHERE at_s < ?", (now_s - _KEPT_DAYS * 86_400,))

    def close(self) -> None:
        """End."""
        self._database.close()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise CloudError(f"{self._path}: {error}: --state names another place") from error


_LISTED: Final = 10
"""Alerts of one rule that are listed; more are counted, with as many of their masts."""


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


def digested(digest: time_of_day, since: datetime) -> datetime:
    """Returns when what is there ``since`` then is sent: when clocks there show the digest's time next."""
    first = datetime.combine(since, digest, since.tzinfo)
    return first if first >= since else first + timedelta(days=1)


def message(alerts: Iterable[AlertRecord]) -> Message:
    """Alerts in one message, by rule in the order in which they came: a fleet's storm is a few lines."""
    rules: dict[tuple[str, str], list[AlertRecord]] = {}
    for each in alerts:
        cause = f"over: {each.rule}" if each.state == "cleared" else each.rule
        rules.setdefault((cause, each.severity), []).append(each)
    causes = list(dict.fromkeys(cause for cause, _ in rules))
    more = f" and {len(causes) - 3} more" if len(causes) > 3 else ""
    where = _masts(each for of_rule in rules.values() for each in of_rule).partition(" (")[0]
    body = (_paragraph(f"{cause}, {severity}", each) for (cause, severity), each in rules.items())
    return Message(f"{where}: {', '.join(causes[:3])}{more}", "\n\n".join(body))


def _paragraph(head: str, alerts: Sequence[AlertRecord]) -> str:
    """One rule's alerts in short lines, for a phone, and what to do about them."""
    lines = [head, *map(_lines, alerts)]
    if len(alerts) > _LISTED:
        times = sorted(map(_minute, alerts))
        counted = f"{len(alerts):,} alerts, {times[0]} to {times[-1]} UTC"
        lines = [f"{head}: {_masts(alerts)}", counted, f"The first: {_lines(alerts[0])}"]
    known = remedies().get(alerts[0].rule) if alerts[0].state == "raised" else None
    return "\n".join(lines + ([known["remedy"]] if known else []))


def _masts(alerts: Iterable[AlertRecord]) -> str:
    names = sorted({alert.gateway for alert in alerts})
    listed = ", ".join(names[:_LISTED]) + ", …" * (len(names) > _LISTED)
    return names[0] if len(names) == 1 else f"{len(names):,} masts ({listed})"


def _lines(alert: AlertRecord) -> str:
    channel = f" {alert.channel}" if alert.channel else ""
    detail = alert.detail.removeprefix("over: ").removeprefix(f"{alert.gateway}: ")
    # The paragraph's head and this line say it already.
    detail = "" if detail == f"{alert.rule}{channel}" else detail
    begin = f"{alert.raised_at[:10]} {alert.raised_at[11:16]} to " * (alert.state == "cleared")
    return f"{alert.gateway}{channel}, {begin}{_minute(alert)} UTC" + f"\n{detail}" * bool(detail)


def _minute(alert: AlertRecord) -> str:
    at = alert.cleared_at if alert.state == "cleared" and alert.cleared_at else alert.raised_at
    return f"{at[:10]} {at[11:16]}"


_STORM: Final = 20
_LONGEST_GROUPS: Final = 10


def closes(ready: Iterable[datetime], group_s: float) -> datetime:
    """When no more alerts are waited for; in a storm later, until nothing has come for one group's time."""
    times, group = sorted(ready), timedelta(seconds=group_s)
    if len(times) < _STORM:
        return times[0] + group
    return min(times[-1] + group, times[0] + _LONGEST_GROUPS * group)


_TURN_S: Final = 0.5
_AGAIN_S: Final = (2.0, 300.0)
_MOST_HELD: Final = 50_000

Send = Callable[[Message], bool]
"""Sends a message to people; whether it was taken."""


class Held(NamedTuple):
    """An alert that waits from ``ready`` on for the message it is in, and where it stands in Kafka."""

    place: Partition
    offset: int
    alert: AlertRecord
    ready: datetime


class Opens(NamedTuple):
    """What a target reads, opened anew after a failure; ``acknowledged``: who has seen which alert."""

    sent: Callable[[], Sent]
    reader: Callable[[], TopicReader]
    acknowledged: Callable[[datetime], Mapping[str, Acknowledgement]] = lambda _now: {}


class Target:
    """One target. ``run`` is a thread's; it ends with ``stopping``."""

    def __init__(
        self,
        name: str,
        config: TargetConfig,
        send: Send,
        opens: Opens,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._config = config
        self._send = send
        self._opens = opens
        self._now = now
        self._monotonic = monotonic
        self._zone = ZoneInfo(config.time_zone)
        self._held: dict[tuple[str, str], Held] = {}
        self._read_to: dict[Partition, int] = {}
        self._again_at_s = 0.0
        self._kept_at_s = 0.0
        self._backoff = Backoff(*_AGAIN_S)

    def run(self, stopping: threading.Event) -> None:
        """Until it is stopped; what fails is tried again, later and later."""
        again = Backoff(*_AGAIN_S)
        while not stopping.is_set():
            self._held.clear()
            self._read_to.clear()
            try:
                with closing(self._opens.sent()) as sent, closing(self._opens.reader()) as reader:
                    # Where a new target begins is kept: else the start after a crash would begin later.
                    self._read_to = dict(reader.begun)
                    while not stopping.is_set():
                        is_kept = reader.begun.keys() <= reader.committed.keys()
                        self.turn(reader, sent)
                        if not is_kept and reader.begun.keys() <= reader.committed.keys():
                            log.info("event=notify.reads target=%s", self.name)
                            again.reset()
                    reader.flush()
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
            self._hold(record, sent)
        if self._held and self._monotonic() >= self._again_at_s:
            self._send_due(sent)
        positions = dict(self._read_to)
        for held in self._held.values():
            positions[held.place] = min(positions[held.place], held.offset)
        moved = any(reader.committed.get(place) != at for place, at in positions.items())
        if moved or self._monotonic() >= self._kept_at_s + KEEP_EVERY_S:
            self._kept_at_s = self._monotonic()
            reader.commit(positions)

    def _hold(self, record: TopicRecord, sent: Sent) -> None:
        """Has an alert wait, from a restart on too: until it was sent, its place is what Kafka keeps."""
        alert, waits_s = parse_alert(record.value), self._config.escalate_after_s
        if alert is None:
            return
        since, ready = datetime.fromtimestamp(record.time_ms / 1000, UTC), self._now()
        if waits_s is not None and alert.state == "cleared":
            self._held.pop((alert.id, "raised"), None)
            if not sent.has(alert.id, "raised"):
                return
        elif waits_s is not None:
            since += timedelta(seconds=waits_s)
            ready = max(ready, since)
        ready = max(ready, self._digest_after(alert, since) or ready)
        if wanted(alert, self._config) and not sent.has(alert.id, alert.state):
            held = Held(record.place, record.offset, alert, ready)
            self._held.setdefault((alert.id, alert.state), held)

    def _digest_after(self, alert: AlertRecord, since: datetime) -> datetime | None:
        """When the digest is sent that an alert waits for which is there ``since`` then; None: it needn't."""
        if self._config.digest is None or is_urgent(alert, self._config):
            return None
        return digested(self._config.digest, since.astimezone(self._zone))

    def _send_due(self, sent: Sent) -> None:
        now = self._now()
        quiet = is_quiet(self._config, now.astimezone(self._zone))
        # Else nothing more would be read before the digest, and what is urgent would wait with it.
        is_full = self._config.digest is not None and len(self._held) >= _MOST_HELD
        due = {
            key: held for key, held in self._held.items()
            if (held.ready <= now or is_full) and (not quiet or is_urgent(held.alert, self._config))
        }  # fmt: skip
        if not due or (
            now < closes((held.ready for held in due.values()), self._config.group_s) and not is_full
        ):
            return
        if self._config.escalate_after_s is not None:
            self._leave_acknowledged(due, now)
        if not due:
            return
        if not self._send(message(held.alert for held in due.values())):
            self._again_at_s = self._monotonic() + (delay_s := self._backoff.next())
            log.warning("event=notify.refused target=%s alerts=%d again_s=%g", self.name, len(due), delay_s)
            return
        self._backoff.reset()
        sent.add(due, int(now.timestamp()))
        log.info("event=notify.sent target=%s alerts=%d", self.name, len(due))
        for key in due:
            del self._held[key]

    def _leave_acknowledged(self, due: dict[tuple[str, str], Held], now: datetime) -> None:
        """Takes out those that people have seen, for good or until their time is over."""
        seen = self._opens.acknowledged(now)
        for key, held in [each for each in due.items() if each[0][1] == "raised"]:
            if (found := seen.get(held.alert.id)) is None:
                continue
            del due[key]
            if found.until is None:
                del self._held[key]
            else:
                ready = self._digest_after(held.alert, found.until) or found.until
                self._held[key] = held._replace(ready=ready)


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
    reader = partial(TopicReader, config.kafka.servers, properties, group, {prefix + ALERTS_TOPIC: "latest"})
    opens = Opens(partial(Sent, state, name), reader)
    if config.notify[name].escalate_after_s is not None:
        opens = opens._replace(acknowledged=_acknowledgements(name, config))
    return Target(name, config.notify[name], send, opens)


def _acknowledgements(name: str, config: CloudConfig) -> Callable[[datetime], Mapping[str, Acknowledgement]]:
    """What reads who has seen an alert. Raises CloudError where no lake is named, or can't be read here."""
    try:
        from cloud.lake.acknowledgements import acknowledged
        from cloud.lake.reader import LakeReader
    except ImportError as error:
        raise CloudError(f"notify.{name}.escalate_after needs the extra analyst: {error}") from error
    if config.lake.path is None:
        raise CloudError(f"notify.{name}.escalate_after needs [lake] path: who has seen an alert is there")
    reader = LakeReader({"lake": (config.lake.path, config.lake.storage)})

    def read(now: datetime) -> Mapping[str, Acknowledgement]:
        try:
            reader.look()
            return acknowledged(reader, now)
        except CloudError as error:
            # A message too many is better than an alert that nobody gets.
            log.warning("event=notify.no_acknowledgements target=%s problem=%r", name, str(error))
            return {}

    return read


def _test(senders: dict[str, Sender]) -> int:
    failed = 0
    for name, send in senders.items():
        taken = send(Message("fieldgate: a test", f"Alerts for {name} come like this."))
        sys.stdout.write(f"{'sent' if taken else 'not taken'}  {name}\n")
        failed += not taken
    return 1 if failed else 0
