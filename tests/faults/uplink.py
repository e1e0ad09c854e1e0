"""A TCP proxy between gateway and Kafka: slow, narrow, mute, closed, or breaking in the middle of a batch.

One thread runs its event loop. Settings are plain attributes, read with every chunk, so a change takes effect
at once; whatever touches connections goes through the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Literal, Self

_CHUNK: Final = 1 << 16
_NARROW_CHUNK: Final = 1 << 10
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST and forgets what is under way, as a modem that loses its link does."""

Direction = Literal["up", "down"]


class _Connection:
    """One client's connection and ours to the server."""

    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self._writers = writers

    def reset(self) -> None:
        for writer in self._writers:
            connected: socket.socket = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Uplink:
    """Forwards ``port`` of 127.0.0.1 to ``target``.

    ``delay_s`` holds in each direction; ``bytes_per_s`` (0: unlimited) is shared by all connections of one
    direction, as on one radio link.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.delay_s = 0.0
        self.bytes_per_s = 0.0
        self.resets = 0
        self.carried = {"up": 0, "down": 0}
        self._target = target
        self._break_next: Direction | None = None
        self._free_s: dict[Direction, float] = {"up": 0.0, "down": 0.0}
        self._connections: set[_Connection] = set()
        self._accepted: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._speaks = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="uplink", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._do(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self) -> None:
        """Accept connections and let everything pass."""
        self.delay_s = self.bytes_per_s = 0.0
        self._break_next = None
        self._do(self._listen())

    def close(self) -> None:
        """Refuse connections, and reset those there are."""
        self._do(self._stop_listening())

    def mute(self) -> None:
        """Keep connections, and accept new ones, but let not a byte pass."""
        self._do(self._hold(True))

    def break_next_batch(self) -> None:
        """Let half of the next sizeable chunk to Kafka pass, then reset: a batch cut in the middle."""
        self._break_next = "up"

    def break_before_answer(self) -> None:
        """Withhold Kafka's next answer and reset: the batch is stored, its producer gets no confirmation."""
        self._break_next = "down"

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._speaks.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            # What has just been accepted gets its transport in the loop's next turn, which fails on a closed
            # server (Python 3.11), and leaves the connection open.
            for listening in server.sockets:
                self._loop.remove_reader(listening)
            await asyncio.sleep(0)
            server.close()
        for connection in tuple(self._connections):
            connection.reset()
        # Those that have no connection to Kafka yet.
        for to_client in self._accepted.values():
            to_client.transport.abort()

    async def _hold(self, mute: bool) -> None:
        if mute:
            self._speaks.clear()
        else:
            self._speaks.set()

    async def _cancel_all(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        # A task that is cancelled before its first turn closes nothing.
        for to_client in self._accepted.values():
            to_client.transport.abort()
        await asyncio.gather(*others, return_exceptions=True)
        # What was aborted is closed some turns of the loop later.
        for _ in range(5):
            await asyncio.sleep(0)

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(client, to_client))
        self._accepted[task] = to_client
        task.add_done_callback(lambda done: self._accepted.pop(done, None))

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            # Kafka itself is away: the client sees a connection that ends at once.
            to_client.transport.abort()
            return
        connection = _Connection((to_client, to_server))
        self._connections.add(connection)
        try:
            await asyncio.gather(
                self._carry("up", client, to_server, connection.reset),
                self._carry("down", server, to_client, connection.reset),
            )
        except OSError:
            pass
        finally:
            self._connections.discard(connection)
            connection.reset()

    async def _carry(
        self,
        way: Direction,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        reset: Callable[[], None],
    ) -> None:
        """Bytes of one direction; a resource of both tasks ends with the connection's reset."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

        async def take() -> None:
            try:
                while chunk := await source.read(_NARROW_CHUNK if self.bytes_per_s else _CHUNK):
                    await queue.put((self._loop.time() + self.delay_s, chunk))
            except OSError:
                reset()
            await queue.put((0.0, b""))

        taker = asyncio.create_task(take())
        try:
            while True:
                due_s, chunk = await queue.get()
                if not chunk:
                    break
                await self._until(due_s)
                await self._speaks.wait()
                if self._break_next == way and (way == "down" or len(chunk) > 200):
                    self._break_next = None
                    self.resets += 1
                    if way == "up":
                        sink.write(chunk[: len(chunk) // 2])
                        await sink.drain()
                        # Closing in order here: the server is to see the half, not only the reset.
                        sink.close()
                    reset()
                    break
                if self.bytes_per_s:
                    self._free_s[way] = (
                        max(self._free_s[way], self._loop.time()) + len(chunk) / self.bytes_per_s
                    )
                    await self._until(self._free_s[way])
                sink.write(chunk)
                self.carried[way] += len(chunk)
                await sink.drain()
        finally:
            taker.cancel()
            if not sink.is_closing():
                sink.close()

    async def _until(self, due_s: float) -> None:
        wait_s = due_s - self._loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
