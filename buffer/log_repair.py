"""A write-ahead log with damage in its middle.

SQLite reads a log up to the first frame whose checksum is wrong and ignores the rest. Here the log is
rewritten from its sound frames; the blocks' own checksums find what is still wrong. A power cut damages the
last transaction only, whose commit was never confirmed: such a log is left to SQLite.

Layout: https://www.sqlite.org/fileformat.html, section 4.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = 0x377F_0682 | (sys.byteorder == "big")
_FORMAT: Final = 3_007_000
_WORD: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class _Frame:
    page: int
    commit: int
    checksum: tuple[int, int]
    content: bytes
    sound: bool


def is_cut_short(log: Path, frames: int, page_bytes: int) -> bool:
    """Whether there is a commit beyond the frames that SQLite accepts. Quick: reads frame heads only."""
    frame_bytes = _FRAME.size + page_bytes
    with log.open("rb") as file:
        head = file.read(_HEADER.size)
        at = _HEADER.size + frames * frame_bytes
        file.seek(at)
        while len(frame := file.read(_FRAME.size)) == _FRAME.size:
            # One salt of two: the other may be what is damaged.
            same_log = frame[8:12] == head[16:20] or frame[12:16] == head[20:24]
            if same_log and any(frame[4:8]):
                return True
            at += frame_bytes
            file.seek(at)
    return False


def repaired(log: bytes, page_bytes: int) -> bytes | None:
    """The log without its damaged frames; None where only its last transaction is damaged, or nothing is."""
    salts = _salts(log, page_bytes)
    frames = list(_frames(log, salts, page_bytes))
    commits = [at for at, frame in enumerate(frames) if frame.sound and frame.commit]
    if not commits:
        return None
    frames = frames[: commits[-1] + 1]
    sound = [frame for frame in frames if frame.sound]
    head_is_sound = log[: _HEADER.size] == _header(salts, _HEADER.unpack_from(log)[3], page_bytes)
    last_begins = next((at + 1 for at in reversed(commits[:-1])), 0)
    if all(frame.sound for frame in frames[:last_begins]) and head_is_sound:
        return None
    header = _header(salts, 0, page_bytes)
    parts, checksum = [header], _HEADER.unpack(header)[6:]
    for frame in sound:
        head = struct.pack(">2I", frame.page, frame.commit)
        checksum = _checksum(head + frame.content, *checksum)
        parts += [head, struct.pack(">4I", *salts, *checksum), frame.content]
    return b"".join(parts)


def _salts(log: bytes, page_bytes: int) -> tuple[int, int]:
    """The header's, or the first frame's where that one doesn't agree with the header but with the second."""
    header = _HEADER.unpack_from(log)
    stored: tuple[int, int] = (header[4], header[5])
    frame_bytes = _FRAME.size + page_bytes
    heads = [
        _FRAME.unpack_from(log, at)[2:4]
        for at in range(
            _HEADER.size, min(len(log), _HEADER.size + 2 * frame_bytes) - _FRAME.size, frame_bytes
        )
    ]
    agree = len(heads) == 2 and heads[0] == heads[1]
    half = agree and (heads[0][0] == stored[0]) != (heads[0][1] == stored[1])
    return (heads[0][0], heads[0][1]) if half else stored


def _frames(log: bytes, salts: tuple[int, int], page_bytes: int) -> Iterator[_Frame]:
    before = _HEADER.unpack(_header(salts, _HEADER.unpack_from(log)[3], page_bytes))[6:]
    frame_bytes = _FRAME.size + page_bytes
    for at in range(_HEADER.size, len(log) - frame_bytes + 1, frame_bytes):
        page, commit, salt_1, salt_2, sum_1, sum_2 = _FRAME.unpack_from(log, at)
        if salt_1 != salts[0] and salt_2 != salts[1]:
            # Left over from an earlier, longer log.
            return
        content = log[at + _FRAME.size : at + frame_bytes]
        sound = (
            (salt_1, salt_2) == salts
            and page > 0
            and _checksum(log[at : at + 8] + content, *before) == (sum_1, sum_2)
        )
        yield _Frame(page, commit, (sum_1, sum_2), content, sound)
        before = (sum_1, sum_2)


def _header(salts: tuple[int, int], sequence: int, page_bytes: int) -> bytes:
    fields = struct.pack(">6I", _MAGIC, _FORMAT, page_bytes, sequence, *salts)
    return fields + struct.pack(">2I", *_checksum(fields, 0, 0))


def _checksum(content: bytes, sum_1: int, sum_2: int) -> tuple[int, int]:
    words = struct.unpack(f"={len(content) // 4}I", content)
    for at in range(0, len(words), 2):
        sum_1 = (sum_1 + words[at] + sum_2) & _WORD
        sum_2 = (sum_2 + words[at + 1] + sum_1) & _WORD
    return sum_1, sum_2
