"""The connection to the local Mosquitto: publishes readings, hands subscribed messages to the forwarder.

Invariants: the client's network thread only enqueues other devices' messages and echoes, and answers those of
the gateway's own retained topics itself; nothing is queued for publishing while there is no connection; a
PUBACK belongs to one connection, and is void after it, since the broker's message ids begin again; a retained
message of other devices comes with a new subscription only, not at every reconnect.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.config.model import MqttConfig
from gateway.mqtt.broker_drops import TOPIC as DROPS_TOPIC
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.ports import Ack, OwnTopics, Receiver
from gateway.system.backoff import Backoff
from gateway.system.watchdog import Heartbeat

log = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 2.0
STOP_TIMEOUT_S: Final = 5.0
# Shorter than that: a connect under way ends before ``stop`` gives up waiting for it.
_CONNECT_TIMEOUT_S: Final = 3.0
_PROVEN_S: Final = 30.0
_SESSION_TAKEN_OVER: Final = 142
# Mosquitto 2.0.11 gives no reason for a takeover: so many that it ended so soon count as one.
_SHORT_S: Final = 5.0
_SUSPICIOUS: Final = 3
_SESSION_EXPIRY_S: Final = 7 * 86400
# Above about 100 paho gets slower, not faster.
_IN_FLIGHT: Final = 100
_QUEUED: Final = 10_000
# Two minutes: a name that no resolver answers for may take one.
_TURN_PERIODS: Final = 2.0


# A retained value comes with a new subscription only.
_NEW: Final = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
# The session outlives a killed daemon: what that has left on our own topics comes at each connect.
_ALWAYS: Final = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE)
# At QoS 0, so that the session keeps no room for it.
_LATEST: Final = SubscribeOptions(qos=0, retainHandling=SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE)


def _forwards_drops(filters: Iterable[str]) -> bool:
    return any(topic_matches_sub(each, DROPS_TOPIC) for each in filters)


class _Turning(Client):
    """Counts how often its network loop comes round: once a second, or with each packet."""

    turns = 0

    def loop_misc(self) -> MQTTErrorCode:
        """As the loop does at the end of each turn."""
        self.turns += 1
        return super().loop_misc()


class MqttSession:
    """One MQTT 5 session with manual acknowledgement; reconnects for ever.

    Messages go to ``receiver``, those of ``own`` topics to ``own``, called by the network thread. ``will``
    (topic, payload) is what the broker publishes, retained, when this process can't. ``drops`` counts what
    the broker has dropped, where it publishes that.
    """

    def __init__(
        self,
        config: MqttConfig,
        client_id: str,
        filters: Iterable[str],
        receiver: Receiver,
        own: OwnTopics,
        will: tuple[str, bytes],
        drops: BrokerDrops | None = None,
    ) -> None:
        self._address = (config.host, config.port, config.keepalive_s)
        self._receiver = receiver
        self._own = own
        self._drops = drops
        self._drops_request: int | None = None
        self._filters = tuple(filters)
        self._ended: set[str] = set()
        self._subscribing = threading.Lock()
        self._retained: dict[str, bytes] = {}
        self._retaining = threading.Lock()
        self._connection = 0
        # Messages in flight come right behind CONNACK: they may be acknowledged before we are subscribed.
        self._connected = False
        self._connected_at_s = float("-inf")
        self._short_lived = 0
        self._stopping = threading.Event()
        self._may_connect = threading.Event()
        self._may_connect.set()
        self._backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        self._tries = 0
        self.ready = threading.Event()
        client = _Turning(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = _CONNECT_TIMEOUT_S
        if config.login is not None:
            client.username_pw_set(*config.login)
        client.max_inflight_messages_set(_IN_FLIGHT)
        client.max_queued_messages_set(_QUEUED)
        client.will_set(will[0], will[1], qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        self._client = client
        self._thread = threading.Thread(target=self._run, name="mqtt", daemon=True)

    def retain(self, messages: Mapping[str, bytes]) -> None:
        """Publish these, retained, now and at every connect: a broker may lose them. Empty removes one."""
        # One after the other: an old message must not come after the new one.
        with self._retaining:
            changed = {topic: each for topic, each in messages.items() if self._retained.get(topic) != each}
            self._retained |= changed
            self._publish_retained(changed)

    def forget_removed(self) -> None:
        """Removals the broker has had time to take need no repeating at the next connect."""
        with self._retaining:
            self._retained = {topic: each for topic, each in self._retained.items() if each}

    def _publish_retained(self, topics: Iterable[str]) -> None:
        if self.ready.is_set():
            for topic in topics:
                if topic in self._retained:
                    self._client.publish(topic, self._retained[topic], qos=1, retain=True)

    def refilter(self, filters: Iterable[str]) -> None:
        """Subscribe to these from now on, without a new connection."""
        with self._subscribing:
            before, self._filters = self._filters, tuple(filters)
            # The broker's session remembers subscriptions: they are ended at each further connect, too.
            self._ended = (self._ended | set(before)) - set(self._filters)
            added = [(each, _NEW) for each in self._filters if each not in before]
            if self._connected:
                # Overlapping filters would bring a message twice: first the old ones go.
                self._unsubscribe()
                if _forwards_drops(self._filters) and not _forwards_drops(before):
                    self._client.unsubscribe(DROPS_TOPIC)
                if added:
                    self._client.subscribe(added)
                if _forwards_drops(before):
                    self._subscribe_to_drops()

    def start(self) -> None:
        """Start connecting; ``ready`` is set while connected and subscribed."""
        self._thread.start()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Publish at QoS 1; False while not subscribed (what is published then would not come back to us)."""
        if not self.ready.is_set():
            return False
        return self._client.publish(topic, payload, qos=1, retain=retain).rc == MQTTErrorCode.MQTT_ERR_SUCCESS

    def is_alive(self) -> bool:
        """Whether the network thread runs."""
        return self._thread.is_alive()

    def heartbeats(self) -> tuple[Heartbeat, ...]:
        """For the watchdog: that the network thread comes round, connected or not."""
        turns = self._client.turns + self._tries
        return (Heartbeat("mqtt", turns, _TURN_PERIODS, thread=self._thread.native_id),)

    def acknowledge(self, ack: Ack) -> None:
        """Send a PUBACK, unless its connection is gone."""
        if ack.connection == self._connection and self._connected:
            self._client.ack(ack.message_id, 1)

    def hold(self) -> None:
        """Stay away from the broker, which keeps QoS 1 messages for the session; doesn't wait."""
        log.warning("event=mqtt.held reason=memory_full")
        self._may_connect.clear()
        self._client.disconnect()

    def resume(self) -> None:
        """Connect again after ``hold``; doesn't wait."""
        log.warning("event=mqtt.resumed")
        self._may_connect.set()

    def stop(self, last: tuple[str, bytes] | None = None) -> None:
        """Publish a last retained message where there is one, disconnect and end."""
        self._stopping.set()
        if last is not None and self.ready.is_set():
            published = self._client.publish(*last, qos=1, retain=True)
            if published.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
                published.wait_for_publish(2.0)
        self._client.disconnect()
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        host, port, keepalive_s = self._address
        session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        session.SessionExpiryInterval = _SESSION_EXPIRY_S
        while not self._stopping.is_set():
            self._tries += 1
            if not self._may_connect.wait(_FIRST_RETRY_S):
                continue
            try:
                self._client.connect(host, port, keepalive_s, clean_start=False, properties=session)
                self._client.loop_forever()
            except (OSError, UnicodeError) as error:
                self._short_lived = 0
                # UnicodeError: a host name that the resolver's encoding refuses.
                level = logging.WARNING if self._backoff.delay_s == _FIRST_RETRY_S else logging.DEBUG
                log.log(level, "event=mqtt.unreachable address=%s:%d error=%s", host, port, error)
            self.ready.clear()
            self._connected = False
            if time.monotonic() - self._connected_at_s > _PROVEN_S:
                # A short-lived connection is no reason to hurry: two daemons with one id would throw each
                # other out many times a second.
                self._backoff.reset()
            self._stopping.wait(self._backoff.next())

    def _on_connect(
        self, client: Client, _data: Any, flags: ConnectFlags, reason: ReasonCode, *_: Any
    ) -> None:
        if self._stopping.is_set():
            # ``stop`` was called while the connection was being made.
            client.disconnect()
            return
        if reason.is_failure:
            log.error("event=mqtt.refused reason=%s", reason)
            return
        self._connection += 1
        self._connected_at_s = time.monotonic()
        if not flags.session_present:
            # The broker was restarted, which is no takeover.
            self._short_lived = 0
            self._receiver.session_lost()
        with self._subscribing:
            self._connected = True
            self._unsubscribe()
            own = [(each, _ALWAYS) for each in self._own.names]
            client.subscribe([*own, *((each, _NEW) for each in self._filters)])
            if self._drops is not None:
                self._drops.connected(session_present=flags.session_present)
            self._drops_request = None
            self._subscribe_to_drops()

    def _unsubscribe(self) -> None:
        if self._ended:
            self._client.unsubscribe(sorted(self._ended))

    def _subscribe_to_drops(self) -> None:
        # Apart, because it may be forbidden. Where it is forwarded it comes anyway: a second subscription
        # would replace that one or double it.
        if self._drops is not None and not _forwards_drops(self._filters):
            _, self._drops_request = self._client.subscribe(DROPS_TOPIC, options=_LATEST)

    def _on_subscribe(
        self, client: Client, _data: Any, request: int, reasons: list[ReasonCode], *_: Any
    ) -> None:
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if request == self._drops_request:
            if refused:
                log.info("event=mqtt.drops_unknown reasons=%s", refused)
            return
        if refused:
            log.error("event=mqtt.subscription_refused reasons=%s remedy=check_the_broker_acl", refused)
            client.disconnect()
            return
        self.ready.set()
        log.info("event=mqtt.subscribed filters=%s", ",".join(self._filters))
        with self._retaining:
            self._publish_retained(self._retained)

    def _on_disconnect(
        self, _client: Client, _data: Any, _flags: DisconnectFlags, reason: ReasonCode, *_: Any
    ) -> None:
        self.ready.clear()
        self._connected = False
        if reason.value == _SESSION_TAKEN_OVER:
            log.error("event=mqtt.session_taken_over remedy=is_a_second_daemon_running_with_this_gateway_id")
            self._backoff.delay_s = _LONGEST_RETRY_S
        elif not self._stopping.is_set():
            log.warning("event=mqtt.disconnected reason=%s", reason)
            if reason.is_failure:
                # Not a disconnect of our own, held or because a subscription was refused.
                self._suspect_takeover()

    def _suspect_takeover(self) -> None:
        """The broker has ended a connection without a reason: maybe another client took the session."""
        short = time.monotonic() - self._connected_at_s <= _SHORT_S
        self._short_lived = self._short_lived + 1 if short else 0
        if self._short_lived >= _SUSPICIOUS:
            self._backoff.delay_s = _LONGEST_RETRY_S
        if self._short_lived == _SUSPICIOUS:
            log.error(
                "event=mqtt.session_taken_over certain=no connections=%d"
                " remedy=is_a_second_daemon_running_with_this_gateway_id",
                _SUSPICIOUS,
            )

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        if message.topic == DROPS_TOPIC and self._drops is not None:
            self._drops.update(bytes(message.payload))
            if self._drops_request is not None:
                return
        topic, payload = message.topic, bytes(message.payload)
        ack = Ack(self._connection, message.mid) if message.qos else None
        if topic in self._own.names:
            if self._own.arrived(topic, payload):
                with self._retaining:
                    self._publish_retained([topic])
            if ack is not None:
                self.acknowledge(ack)
        elif self._receiver.arrived(topic, payload, ack, retained=message.retain, repeated=message.dup):
            self.hold()
