"""Blocks: what they give back, and that nothing else comes out of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, strategies as st

from buffer.blocks import ZSTD, Block, DamagedBlockError, Dictionary, learn, make

RECORDS = [b'{"channel":"cup-50m-a.wind_speed","value":7.235,"seq":%d}' % seq for seq in range(400)]


@given(first=st.integers(1, 1 << 60), records=st.lists(st.binary(max_size=200), min_size=1, max_size=20))
def test_round_trip(first: int, records: list[bytes]) -> None:
    for dictionary in (None, learn(RECORDS)):
        block = make(first, records, b"summary", dictionary)
        assert block.head_is_sound()
        assert (block.first, block.last) == (first, first + len(records) - 1)
        assert block.records(dictionary) == records


def test_repetitive_records_are_compressed_and_better_with_a_dictionary() -> None:
    dictionary = learn(RECORDS)
    assert dictionary is not None
    alone, helped = make(1, RECORDS[:3], b"", None), make(1, RECORDS[:3], b"", dictionary)
    assert (alone.codec, helped.codec) == (ZSTD, ZSTD)
    assert len(helped.payload) < len(alone.payload) / 2
    assert make(1, [b"q"], b"", dictionary).codec == 0


def test_few_bytes_make_no_dictionary() -> None:
    assert learn(RECORDS[:200]) is None


def test_wrong_or_missing_dictionary_is_damage_and_not_rubbish() -> None:
    dictionary, other = learn(RECORDS), learn(RECORDS[::-1])
    assert dictionary is not None
    assert other is not None
    block = make(1, RECORDS, b"", dictionary)
    for wrong in (None, other):
        with pytest.raises(DamagedBlockError) as damage:
            block.records(wrong)
        assert damage.value.head_is_sound


@pytest.mark.parametrize("dictionary", [None, learn(RECORDS)])
def test_every_change_of_a_single_bit_is_found(dictionary: Dictionary | None) -> None:
    block = make(7, RECORDS[:2], b"seq 1-2", dictionary)
    fields: dict[str, Any] = {
        name: getattr(block, name) for name in ("summary", "payload", "payload_checksum")
    }
    for name, content in fields.items():
        for bit in range(8 * len(content)):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            change: dict[str, Any] = {name: bytes(changed)}
            damaged = dataclasses.replace(block, **change)
            with pytest.raises(DamagedBlockError) as damage:
                damaged.records(dictionary)
            assert damage.value.head_is_sound == (name != "summary")


@pytest.mark.parametrize(
    "change", [{"first": 8}, {"count": 1}, {"count": 0}, {"codec": 7}, {"dictionary": 5}]
)
def test_every_number_of_the_head_is_covered(change: dict[str, Any]) -> None:
    block: Block = dataclasses.replace(make(7, RECORDS[:2], b"seq 1-2", None), **change)
    assert not block.head_is_sound()
    with pytest.raises(DamagedBlockError):
        block.records(None)


def test_payload_of_another_block_is_refused() -> None:
    one, two = make(1, [b"a"], b"", None), make(2, [b"b"], b"", None)
    swapped = dataclasses.replace(one, payload=two.payload, payload_checksum=two.payload_checksum)
    with pytest.raises(DamagedBlockError):
        swapped.records(None)
