"""A record's signature is of that record alone, by one key, and is no proof of a run."""

from __future__ import annotations

import hmac
from hashlib import sha256

from hypothesis import assume, given, strategies as st

from cloud.wire.identities import gateway_key, proving_run
from cloud.wire.signatures import MAC_HEADER, sign, signature, signing_key

KEY = gateway_key("m" * 32, "mast-07", 1)
OTHER = gateway_key("m" * 32, "mast-07", 2)
NAMES = st.text(st.characters(codec="utf-8"), max_size=9)
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=9)), max_size=3)
RECORDS = st.tuples(NAMES, st.binary(max_size=20), st.binary(max_size=90), HEADERS)
Record = tuple[str, bytes, bytes, list[tuple[str, bytes]]]


def mac_of(record: Record) -> bytes:
    topic, key, value, headers = record
    return sign(signing_key(KEY), topic, key, value, headers)


def is_signed(record: Record, mac: bytes, by: str = KEY) -> bool:
    topic, key, value, headers = record
    found = signature(topic, key, sha256(value).digest(), [*headers, (MAC_HEADER, mac)])
    return found is not None and found.is_by(by)


def test_a_signature_is_the_same_in_every_version() -> None:
    # By openssl: printf 'fieldgate signs records' | openssl dgst -sha256 -mac HMAC -macopt hexkey:$KEY, and
    # with that for a key the same of 5:mqtt.4:mast32:…3:run2:r1, where … is the SHA-256 of "{}", binary.
    assert signing_key(KEY).hex() == "e022ea6a3a0727609f57f17b4206093b46f09d54e4a9f631b667cd1aaee41a46"
    assert mac_of(("mqtt.", b"mast", b"{}", [("run", b"r1")])).hex() == "ef343da797c8c199640973e6a00eb4f4"


@given(record=RECORDS)
def test_a_record_is_signed_by_its_key_alone(record: Record) -> None:
    mac = mac_of(record)
    assert len(mac) == 16
    assert is_signed(record, mac)
    assert not is_signed(record, mac, OTHER)


@given(record=RECORDS, other=RECORDS)
def test_another_record_has_another_signature(record: Record, other: Record) -> None:
    assume(record != other)
    assert not is_signed(other, mac_of(record))


@given(record=RECORDS, place=st.integers(0, 5), at=st.integers(0), bit=st.integers(0, 7))
def test_whatever_byte_is_changed_it_is_refused(record: Record, place: int, at: int, bit: int) -> None:
    topic, key, value, headers = record
    parts = [topic.encode(), key, value, mac_of(record)]
    parts += [part for name, header in headers for part in (name.encode(), header)]
    place %= len(parts)
    assume(parts[place])
    at %= len(parts[place])
    parts[place] = parts[place][:at] + bytes([parts[place][at] ^ 1 << bit]) + parts[place][at + 1 :]
    texts = [part.decode("utf-8", "backslashreplace") for part in parts]
    changed = [(texts[number], parts[number + 1]) for number in range(4, len(parts), 2)]
    assert not is_signed((texts[0], parts[1], parts[2], changed), parts[3])


@given(record=RECORDS, at=st.integers(1, 8))
def test_no_byte_may_move_from_one_part_to_the_next(record: Record, at: int) -> None:
    topic, key, value, headers = record
    assume(len(key) > at)
    mac = mac_of(record)
    assert not is_signed((topic, key[:at], key[at:] + value, headers), mac)
    assert not is_signed((topic, key[:at], value, [("", key[at:]), *headers]), mac)
    # A header that was put before or behind it, or left out.
    assert not is_signed((topic, key, value, [*headers, ("replayed", b"1")]), mac)
    given_headers: list[tuple[str, bytes | None]] = [*headers, (MAC_HEADER, mac), ("replayed", b"1")]
    assert signature(topic, key, sha256(value).digest(), given_headers) is None


@given(
    topic=NAMES,
    key=st.none() | st.binary(max_size=9),
    digest=st.none() | st.just(sha256(b"").digest()),
    headers=st.none() | st.lists(st.tuples(st.just(MAC_HEADER) | NAMES, st.none() | st.binary(max_size=20))),
)
def test_whatever_the_headers_are_nobody_has_signed_it(
    topic: str, key: bytes | None, digest: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> None:
    found = signature(topic, key, digest, headers)
    assert found is None or not found.is_by(KEY)


@given(nonce=st.text("0123456789abcdef", min_size=12, max_size=12))
def test_what_proves_a_run_signs_nothing(nonce: str) -> None:
    proof = proving_run(KEY, "mast-07", nonce).partition("-")[2]
    made = hmac.digest(signing_key(KEY), f"mast-07|{nonce}".encode(), "sha256").hex()
    assert not made.startswith(proof)
