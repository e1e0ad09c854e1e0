"""The MQTT proxy: devices publish to the gateway itself, and a PUBACK means durable.

A thread with a loop of its own has all connections, and decides who may connect and publish where, so that
nothing they do holds up the forwarder. The forwarder's thread calls ``durable`` alone, which doesn't wait.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from paho.mqtt.client import topic_matches_sub

from gateway.config.bridges.access_files import StoredPassword, read_access, read_users
from gateway.config.bridges.model import NO_PROXY, MqttProxyConfig
from gateway.devices.entry import DeviceEntry
from gateway.devices.mqtt_connection import Connection, Receipt, Session, Sessions
from gateway.devices.mqtt_packets import Publish
from gateway.status.bounded_server import Listener
from gateway.status.status import MqttProxyStatus
from gateway.status.tokens import Guesses

_MOST_OF_A_PEER: Final = 50
"""Wrong passwords a minute."""
_MOST_PROVEN: Final = 1_000
_NOBODY: Final = StoredPassword(b"", b"\0" * 64, 101)
"""Checked for users that there are not, so that their names can't be found out by time."""


class MqttAccess:
    """Admits users by the files of a config; without them everyone, to every topic.

    Raises OSError, ValueError.
    """

    def __init__(self, config: MqttProxyConfig, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._users: Mapping[str, StoredPassword] | None = None
        self._filters: Mapping[str, tuple[str, ...]] = {}
        if config.passwords is not None and config.access is not None:
            self._users, self._filters = read_users(config.passwords), read_access(config.access)
        self._by_user = Guesses(monotonic)
        self._by_peer = Guesses(monotonic, _MOST_OF_A_PEER)
        # The hash of what each proved itself by; oldest first.
        self._proven: OrderedDict[tuple[str, int], int] = OrderedDict()

    @property
    def named(self) -> bool:
        """Whether users have names that are proven."""
        return self._users is not None

    def admits(self, user: str | None, password: bytes | None, peer: str) -> bool:
        """Whether a password that came from an address is that of a user; not after too many wrong ones.

        Five a minute for a name at an address: behind it there may be a whole site, and one wrong device
        keeps no other out. Fifty a minute for an address, whatever the names; who was admitted from there
        before still is. The same password still is after its name's five: others may have guessed.
        """
        if self._users is None:
            return True
        # Hashes are stored: a name may be long, and what is remembered has a bound.
        who, guess = (peer, hash(user)), hash((user, password))
        if self._by_user.is_known(who, guess):
            return False
        if self._by_user.must_wait(who) and self._proven.get(who) != guess:
            return False
        if self._by_peer.must_wait(peer) and who not in self._proven:
            return False
        right = self._users.get(user or "", _NOBODY).matches(password or b"")
        if right:
            self._proven[who] = guess
            self._proven.move_to_end(who)
            if len(self._proven) > _MOST_PROVEN:
                self._proven.popitem(last=False)
        else:
            self._by_user.count(who, guess)
            self._by_peer.count(peer)
        return right

    def allows(self, user: str | None, topic: str) -> bool:
        """Whether a user may publish to a topic."""
        if self._users is None:
            return True
        return any(topic_matches_sub(each, topic) for each in self._filters.get(user or "", ()))


log = logging.getLogger(__name__)

_MOST_UNAUTHENTICATED: Final = 32
"""Connections without CONNECT, the TLS handshake's included; a further one is closed at once."""
_MOST_BUFFERED: Final = 16 << 20
"""The connections with most in their buffers have to wait while all together hold more."""
_HANDSHAKE_S: Final = 10.0
_SHUTDOWN_S: Final = 2.0
_TICK_S: Final = 1.0
_SOON_S: Final = 0.05
"""While a connection is held."""
_BACKLOG: Final = 64
_SEND_BYTES: Final = 32 << 10
"""In the kernel: answers have some bytes each, and a device that reads none should be found out."""


class MqttServer:
    """Serves until it is stopped."""

    def __init__(self, config: MqttProxyConfig, entry: DeviceEntry, counts: Counter[str]) -> None:
        """Listen. Raises OSError."""
        self.config = config
        self.sessions = Sessions(config.max_in_flight)
        self.no_session = Session(0)
        """The session of connections that haven't sent CONNECT."""
        self.buffered = 0
        """Bytes that all connections hold."""
        self._entry = entry
        self._counts = counts
        try:
            self.access = MqttAccess(config)
        except ValueError as error:
            raise OSError(str(error)) from error
        self._tls: ssl.SSLContext | None = None
        if config.certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(config.certificate, config.key)
        host, port = config.address or ("127.0.0.1", 0)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.server_port = int(self._listener.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mqtt-proxy", daemon=True)
        self._ended = asyncio.Event()
        self._connections: set[Connection] = set()
        self._unauthenticated = 0
        self._clients = 0
        self._stopping = False
        self._tick: asyncio.TimerHandle | None = None
        self._settled: deque[Receipt] = deque()
        self._waking = False

    # Any thread.

    @property
    def clients(self) -> int:
        """Devices that are connected."""
        return self._clients

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def take_no_more(self) -> None:
        """Accept nothing any more; what was accepted gets its PUBACK once it is durable."""
        self._call(self._take_no_more)

    def stop(self) -> None:
        """Send what is due, close all connections and give the port back."""
        self._call(self._take_no_more)
        self._call(self._ended.set)
        self._thread.join()

    def durable(self, receipt: Receipt) -> None:
        """What came of a message is durable."""
        self._settled.append(receipt)
        if not self._waking:
            self._waking = True
            self._call(self._settle)

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            # The loop has ended: the device gets no PUBACK, and sends the message to the next run.
            log.debug("event=mqtt_proxy.ended")

    # What connections call.

    def now_s(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def count(self, what: str, number: int = 1) -> None:
        """Adds to a count of the status."""
        self._counts[what] += number

    @property
    def is_full(self) -> bool:
        """Whether no further device may connect."""
        return self._clients >= self.config.max_clients

    @property
    def is_crowded(self) -> bool:
        """Whether connections hold too much."""
        return self.buffered > _MOST_BUFFERED

    def opened(self, connection: Connection) -> None:
        """A connection is there."""
        self._connections.add(connection)

    def connected(self, _connection: Connection) -> None:
        """Its device is admitted."""
        self._unauthenticated -= 1
        self._clients += 1
        self.count("connects")

    def closed(self, connection: Connection, *, connected: bool) -> None:
        """It has ended."""
        self._connections.discard(connection)
        if connected:
            self._clients -= 1
        else:
            self._unauthenticated -= 1

    def refused(self, reason: str) -> None:
        """A connection was ended for a reason."""
        self.count("refused")
        self._counts[f"refused {reason}"] += 1

    def held(self) -> None:
        """A connection waits for something: look soon."""
        if self._tick is not None and self._tick.when() > self.now_s() + _SOON_S:
            self._tick.cancel()
            self._tick = self._loop.call_later(_SOON_S, self._turn)

    def enter(self, packet: Publish, receipt: Receipt) -> bool:
        """Hand a message to the forwarder; False: there is no room now."""
        return self._entry.publish(packet.topic, packet.payload, lambda: self.durable(receipt))

    # The thread.

    def _run(self) -> None:
        self._loop.set_exception_handler(self._on_error)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        accepting = self._loop.create_task(self._accept())
        self._tick = self._loop.call_later(_TICK_S, self._turn)
        await self._ended.wait()
        accepting.cancel()
        self._listener.close()
        await self._until(lambda: not any(each.owes for each in self._connections))
        for connection in list(self._connections):
            connection.close()
        await self._until(lambda: not self._connections)

    async def _until(self, done: Callable[[], bool]) -> None:
        until_s = self.now_s() + _SHUTDOWN_S
        while not done() and self.now_s() < until_s:
            await asyncio.sleep(_SOON_S)

    async def _accept(self) -> None:
        tasks = set()
        while True:
            try:
                client, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                log.warning("event=mqtt_proxy.not_accepted error=%s", error)
                await asyncio.sleep(_TICK_S)
                continue
            if self._stopping or self._unauthenticated >= _MOST_UNAUTHENTICATED:
                self.refused("TOO_MANY_UNAUTHENTICATED")
                client.close()
                continue
            self._unauthenticated += 1
            task = self._loop.create_task(self._open(client, str(address[0])))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _open(self, client: socket.socket, peer: str) -> None:
        """Make a connection of an accepted socket, TLS first."""
        times: dict[str, float] = {}
        if self._tls is not None:
            times = {"ssl_handshake_timeout": _HANDSHAKE_S, "ssl_shutdown_timeout": _SHUTDOWN_S}
        made = Connection(self, peer)
        try:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            await self._loop.connect_accepted_socket(lambda: made, client, ssl=self._tls, **times)
        except OSError as error:
            log.debug("event=mqtt_proxy.no_handshake peer=%s error=%s", peer, error)
            self.refused("NO_HANDSHAKE")
            client.close()
            if made not in self._connections:
                self._unauthenticated -= 1

    def _turn(self) -> None:
        self._tick = self._loop.call_later(_TICK_S, self._turn)
        now_s = self.now_s()
        soon = [connection.tick(now_s) for connection in list(self._connections)]
        if any(soon):
            self.held()

    def _settle(self) -> None:
        """Send the PUBACKs that are due."""
        # First: what is durable from now on wakes the loop again.
        self._waking = False
        done = False
        while self._settled:
            receipt = self._settled.popleft()
            receipt.durable = done = True
            receipt.session.waiting -= 1
        if done:
            for connection in list(self._connections):
                connection.go_on()

    def _take_no_more(self) -> None:
        self._stopping = True
        for connection in self._connections:
            connection.stop_reading()

    def _on_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the loop: what breaks off is normal, any other error is a defect."""
        error = context.get("exception")
        if isinstance(error, OSError):
            log.debug("event=server.broken_off server=mqtt_proxy error=%s", error)
        else:
            log.error("event=server.request_failed server=mqtt_proxy", exc_info=error)


class MqttProxy(Listener[MqttProxyConfig, MqttServer]):
    """Messages that devices publish by MQTT. Owned by the main thread."""

    def __init__(self, entry: DeviceEntry) -> None:
        self._entry = entry
        self._counts: Counter[str] = Counter()
        super().__init__(self._make, NO_PROXY)

    @property
    def status(self) -> MqttProxyStatus:
        """Where it listens, who is connected, and what has come."""
        server, counts = self.server, self._counts.copy()
        names = ("connects", "messages", "acknowledged", "repeats")
        refusals = ("unauthorized", "pressure", "subscriptions_refused")
        return MqttProxyStatus(
            port=None if server is None else server.server_port,
            clients=0 if server is None else server.clients,
            refused={
                name.removeprefix("refused "): count
                for name, count in sorted(counts.items())
                if name.startswith("refused ")
            },
            **{name: counts[name] for name in (*names, *refusals)},
        )

    def take_no_more(self) -> None:
        """Accept nothing any more."""
        if self.server is not None:
            self.server.take_no_more()

    def _make(self, config: MqttProxyConfig) -> MqttServer | None:
        return None if config.address is None else MqttServer(config, self._entry, self._counts)
