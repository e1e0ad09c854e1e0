"""A block: the records of one ``append``, as one checksummed unit.

Head (number of the first record, count, codec, dictionary, summary) and payload have a checksum each, so that
a block whose payload is damaged can still be reported by its summary. The payload's checksum covers the
head's: a payload never passes under another block's numbers.

Checksums are BLAKE2b cut to 8 bytes. The payload is zstd with a dictionary, the first 16 KiB of records of
the same file: of twelve channels, 519 bytes a reading become 82 without and 25 with a dictionary (measured).

A block is of one class, by a bit of its codec: the owner's records, or others', which make room first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Final

import zstandard

# Bits of a block's codec.
ZSTD: Final = 1
OTHERS: Final = 2

CHECKSUM_BYTES: Final = 8
ROW_BYTES: Final = 2 * CHECKSUM_BYTES + 40
"""What a block's row takes beside summary and payload."""
DICTIONARY_BYTES: Final = 16 << 10
"""The dictionary is so much of a file's first records: less may be a start's channel records alone."""
_LEVEL: Final = 3
_MOST_BYTES: Final = 64 << 20
_MOST_RECORDS: Final = 1 << 18
"""Of one block, unpacked: more than the memory of a gateway that stores all it holds at once."""
_HEAD: Final = struct.Struct(">qqqq")
_LENGTH: Final = struct.Struct(">I")


class DamagedBlockError(Exception):
    """A block failed its checksums; with ``head_is_sound`` its numbers and summary are right."""

    def __init__(self, head_is_sound: bool) -> None:
        super().__init__("payload" if head_is_sound else "head")
        self.head_is_sound = head_is_sound


@dataclass(frozen=True, slots=True)
class Block:
    """A row of the table ``blocks``, in the order of its columns."""

    first: int
    count: int
    codec: int
    dictionary: int
    summary: bytes
    head_checksum: bytes
    payload_checksum: bytes
    payload: bytes

    @property
    def last(self) -> int:
        """Number of the last record."""
        return self.first + self.count - 1

    @property
    def others(self) -> bool:
        """Whether its records are others'."""
        return bool(self.codec & OTHERS)

    @property
    def size_bytes(self) -> int:
        """What the row takes in the file, without its share of the tree."""
        return len(self.summary) + len(self.payload) + ROW_BYTES

    def head_is_sound(self) -> bool:
        """Whether numbers and summary are as they were written."""
        return self.count > 0 and self.head_checksum == _head_checksum(
            self.first, self.count, self.codec, self.dictionary, self.summary
        )

    def records(self, dictionary: Dictionary | None) -> list[bytes]:
        """The records, as they were appended. Raises DamagedBlockError."""
        if not self.head_is_sound():
            raise DamagedBlockError(head_is_sound=False)
        if self.payload_checksum != _checksum(self.head_checksum, self.payload):
            raise DamagedBlockError(head_is_sound=True)
        if self.count > _MOST_RECORDS:
            raise DamagedBlockError(head_is_sound=True)
        if not self.codec & ZSTD:
            return _unpack(self.payload, self.count)
        if self.dictionary and (dictionary is None or dictionary.number != self.dictionary):
            raise DamagedBlockError(head_is_sound=True)
        decompressor = zstandard.ZstdDecompressor() if dictionary is None else dictionary.decompressor
        try:
            # A file may have been made by anybody: what it says of a size is no reason to reserve as much.
            if not 0 < zstandard.frame_content_size(self.payload) <= _MOST_BYTES:
                raise DamagedBlockError(head_is_sound=True)
            return _unpack(decompressor.decompress(self.payload), self.count)
        except zstandard.ZstdError as error:
            raise DamagedBlockError(head_is_sound=True) from error


class Dictionary:
    """Bytes that blocks refer to, named by their own checksum: a wrong one is never taken for it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.number = number_of(content)
        data = zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        data.precompute_compress(level=_LEVEL)
        self.compressor = zstandard.ZstdCompressor(dict_data=data)
        self.decompressor = zstandard.ZstdDecompressor(dict_data=data)


def number_of(content: bytes) -> int:
    """The number of a dictionary with this content: 48 bits, never 0."""
    return int.from_bytes(blake2b(content, digest_size=6).digest()) | 1


def learn(records: Iterable[bytes]) -> Dictionary | None:
    """A dictionary from a file's first records; None where they are too few to be typical."""
    content = b"".join(records)[:DICTIONARY_BYTES]
    return Dictionary(content) if len(content) == DICTIONARY_BYTES else None


def make(
    first: int,
    records: Sequence[bytes],
    summary: bytes,
    dictionary: Dictionary | None,
    *,
    others: bool = False,
) -> Block:
    """The block of records numbered from ``first``."""
    plain = _pack(records)
    codec, number, payload = OTHERS if others else 0, 0, plain
    compressor = zstandard.ZstdCompressor(level=_LEVEL) if dictionary is None else dictionary.compressor
    compressed = compressor.compress(plain)
    if len(compressed) < len(plain):
        codec |= ZSTD
        number, payload = 0 if dictionary is None else dictionary.number, compressed
    head = _head_checksum(first, len(records), codec, number, summary)
    return Block(first, len(records), codec, number, summary, head, _checksum(head, payload), payload)


def _pack(records: Sequence[bytes]) -> bytes:
    return b"".join((*(_LENGTH.pack(len(record)) for record in records), *records))


def _unpack(packed: bytes, count: int) -> list[bytes]:
    if count * _LENGTH.size > len(packed):
        raise DamagedBlockError(head_is_sound=True)
    lengths = struct.unpack_from(f">{count}I", packed)
    return [packed[begin:end] for begin, end in pairwise(accumulate(lengths, initial=count * _LENGTH.size))]


def _checksum(*parts: bytes) -> bytes:
    digest = blake2b(digest_size=CHECKSUM_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _head_checksum(first: int, count: int, codec: int, dictionary: int, summary: bytes) -> bytes:
    return _checksum(_HEAD.pack(first, count, codec, dictionary), summary)
