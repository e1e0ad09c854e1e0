"""Types of command line arguments, for argparse."""

from __future__ import annotations

import argparse
import tomllib


def override(text: str) -> tuple[str, object]:
    """``key=value``: the value as TOML where it is that, else as a string."""
    key, value = pair(text)
    if "\n" in value:
        return key, value
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def pair(text: str) -> tuple[str, str]:
    """``key=value``."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def positive(text: str) -> float:
    """A finite number above 0."""
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def not_negative(text: str) -> float:
    """A finite number, 0 or above."""
    number = _number(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return number


def count(text: str) -> int:
    """A whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def port(text: str) -> int:
    """A port number, 1 to 65535."""
    number = count(text)
    if number > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 1 to 65535")
    return number
