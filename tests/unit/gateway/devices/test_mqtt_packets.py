"""MQTT packets: what is read, what is refused, and that no bytes do harm."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from gateway.devices.mqtt_packets import (
    BadPacket,
    Connect,
    Disconnect,
    Packet,
    PacketReader,
    Ping,
    Publish,
    Subscribe,
    Unsubscribe,
    suback_refused,
)
from tests.support.mqtt_device import connect, packet, publish, subscribe, text

MOST = 2_000
WET = "".join(("w", "et"))


def read(data: bytes, most: int = MOST) -> list[Packet]:
    reader = PacketReader(most)
    reader.feed(data)
    found = []
    while (each := reader.take()) is not None:
        found.append(each)
    return found


def test_each_packet_is_read() -> None:
    sent = (
        connect("logger-3", user="rain", password=WET, will="rain/gone", keepalive_s=61, clean=False),
        publish("a/b", b"1"),
        publish("a/b", b"", 7, repeated=True),
        publish("ä", b"x" * 300, 65_535),
        publish("a", b"2", 8, qos=2),
        subscribe(9, "a/#", "b"),
        packet(0xA2, b"\0\x0a" + text("b")),
        b"\xc0\0",
        b"\xe0\0",
    )
    assert read(b"".join(sent)) == [
        Connect("logger-3", False, 61, "rain", WET.encode()),
        Publish("a/b", b"1", 0, 0, False),
        Publish("a/b", b"", 1, 7, True),
        Publish("ä", b"x" * 300, 1, 65_535, False),
        Publish("a", b"2", 2, 8, False),
        Subscribe(9, 2),
        Unsubscribe(10),
        Ping(),
        Disconnect(),
    ]


def test_a_refused_subscription_names_each_filter() -> None:
    assert suback_refused(258, 2) == b"\x90\x04\x01\x02\x80\x80"
    assert suback_refused(1, 200) == b"\x90\xca\x01\x00\x01" + b"\x80" * 200


_FLAGS = len(text("MQTT")) + 3
"""Where CONNECT's flags are."""


def flags(value: int) -> bytes:
    sent = bytearray(connect())
    sent[_FLAGS] = value
    return bytes(sent)


@pytest.mark.parametrize(
    ("data", "reason", "answer"),
    [
        (b"GET / HTTP/1.1", "NOT_MQTT", b""),
        (b"\x16\x03\x01", "NOT_MQTT", b""),
        (b"\x10\xff\xff\xff\xff", "TOO_LARGE", b""),
        (b"\x30\x80\x80\x80\x80", "NOT_MQTT", b""),
        (b"\x30\xd1\x0f", "TOO_LARGE", b""),
        (b"\x10\x81\x80\x01", "TOO_LARGE", b""),
        (connect(level=5), "MQTT_5", b"\x20\x03\0\x84\0"),
        (connect(level=3), "MQTT_VERSION", b"\x20\x02\0\x01"),
        (packet(0x10, text("MQIsdp") + b"\3"), "MQTT_VERSION", b"\x20\x02\0\x01"),
        (packet(0x10, text("AMQP") + b"\4\2\0\0" + text("a")), "NOT_MQTT", b""),
        (flags(0x03), "MALFORMED", b""),
        (flags(0x0A), "MALFORMED", b""),
        (flags(0x22), "MALFORMED", b""),
        (flags(0x1E), "MALFORMED", b""),
        (flags(0x42), "MALFORMED", b""),
        (connect("a\0b"), "NOT_UTF8", b""),
        (connect("a\nb"), "NOT_UTF8", b""),
        (connect(will="a/#"), "BAD_TOPIC", b""),
        (packet(0x10, connect()[2:] + b"x"), "MALFORMED", b""),
        (publish("a/+", b""), "BAD_TOPIC", b""),
        (publish("", b""), "BAD_TOPIC", b""),
        (packet(0x30, b"\0\2\xed\xa0"), "NOT_UTF8", b""),
        (packet(0x30, b"\0\2\xff\xff"), "NOT_UTF8", b""),
        (packet(0x30, b"\0\5a"), "MALFORMED", b""),
        (packet(0x32, text("a") + b"\0\0"), "NO_PACKET_ID", b""),
        (packet(0x32, text("a") + b"\0"), "MALFORMED", b""),
        (packet(0x36, text("a") + b"\0\1"), "NOT_MQTT", b""),
        (packet(0x38, text("a")), "NOT_MQTT", b""),
        (packet(0x40, b"\0\1"), "NOT_MQTT", b""),
        (packet(0x62, b"\0\1"), "NOT_MQTT", b""),
        (packet(0x80, b"\0\1" + text("a") + b"\0"), "NOT_MQTT", b""),
        (packet(0x82, b"\0\1"), "MALFORMED", b""),
        (packet(0x82, b"\0\1" + text("a") + b"\3"), "MALFORMED", b""),
        (packet(0x82, b"\0\1" + text("") + b"\0"), "MALFORMED", b""),
        (packet(0xA2, b"\0\1"), "MALFORMED", b""),
        (packet(0xC0, b"x"), "MALFORMED", b""),
        (packet(0xE0, b"x"), "MALFORMED", b""),
    ],
)
def test_what_the_standard_forbids_is_refused(data: bytes, reason: str, answer: bytes) -> None:
    with pytest.raises(BadPacket) as bad:
        read(data)
    assert (bad.value.reason, bad.value.answer) == (reason, answer)


def everything(data: bytes, cuts: list[int]) -> tuple[list[Packet], str]:
    """What is read of bytes that come in pieces, and how it ends."""
    reader, found = PacketReader(MOST), list[Packet]()
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        reader.feed(data[begin:end])
        try:
            while (each := reader.take()) is not None:
                found.append(each)
        except BadPacket as bad:
            return found, bad.reason
        # One packet that hasn't come in full: beyond its length it is no larger than its head.
        assert reader.buffered <= max(MOST, 16 << 10) + 5
    return found, ""


PIECES = st.one_of(
    st.binary(max_size=40),
    st.builds(publish, st.text(min_size=1, max_size=20), st.binary(max_size=200), st.integers(0, 65_535)),
    st.builds(connect, st.text(max_size=30), user=st.none() | st.text(max_size=9), clean=st.booleans()),
    st.builds(subscribe, st.integers(0, 65_535), st.text(max_size=9)),
    st.builds(packet, st.integers(0, 255), st.binary(max_size=60)),
)


@given(st.lists(PIECES, max_size=6), st.data())
def test_no_bytes_do_harm_however_they_are_cut(pieces: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    assert everything(sent, cuts) == everything(sent, [])


PRINTABLE = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn"), exclude_characters="+#"), min_size=1)


@given(PRINTABLE, st.binary(max_size=1_500), st.integers(1, 65_535))
def test_a_message_comes_as_it_was_sent(topic: str, payload: bytes, packet_id: int) -> None:
    assert read(publish(topic, payload, packet_id)) == [Publish(topic, payload, 1, packet_id, False)]


def test_the_length_may_take_four_bytes() -> None:
    payload = bytes(3_000_000)
    sent = publish("a", payload)
    assert struct.unpack(">I", sent[1:5])[0] >> 31
    (found,) = read(sent, 4 << 20)
    assert found == Publish("a", payload, 0, 0, False)
