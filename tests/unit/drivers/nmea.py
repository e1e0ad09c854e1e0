"""A GPS receiver's output: NMEA 0183 sentences of one second."""

from __future__ import annotations

import time


def sentence(body: str) -> bytes:
    """With its checksum."""
    checksum = 0
    for byte in body.encode():
        checksum ^= byte
    return f"${body}*{checksum:02X}\r\n".encode()


def second(time_s: float, latitude: float, longitude: float, altitude_m: float = 2101.5) -> bytes:
    """A 3-D fix, degrees north and east."""
    utc, date = _moment(time_s)
    fix = f"{_angle(latitude, 2, 'NS')},{_angle(longitude, 3, 'EW')}"
    return (
        sentence(f"GPGGA,{utc}.00,{fix},1,08,0.9,{altitude_m:.1f},M,-40.0,M,,")
        + sentence("GPGSA,A,3,01,02,03,04,05,06,07,08,,,,,1.5,0.9,1.2")
        + sentence(f"GPRMC,{utc}.00,A,{fix},0.0,0.0,{date},,,A")
    )


def second_without_fix(time_s: float) -> bytes:
    """No satellites."""
    utc, date = _moment(time_s)
    return (
        sentence(f"GPGGA,{utc}.00,,,,,0,00,,,M,,M,,")
        + sentence("GPGSA,A,1,,,,,,,,,,,,,,,")
        + sentence(f"GPRMC,{utc}.00,V,,,,,,,{date},,,N")
    )


def _moment(time_s: float) -> tuple[str, str]:
    moment = time.gmtime(time_s)
    return time.strftime("%H%M%S", moment), time.strftime("%d%m%y", moment)


def _angle(degrees: float, digits: int, signs: str) -> str:
    whole, minutes = divmod(abs(degrees) * 60, 60)
    return f"{int(whole):0{digits}}{minutes:07.4f},{signs[degrees < 0]}"
