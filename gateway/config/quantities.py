"""The ``[[quantity]]`` tables: what a config measures beside the quantities that are built in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cloud.toml_models import checked
from cloud.toml_problems import WrongValue, quote
from cloud.wire.quantities import NAME, QUANTITIES, Kind, Quantities, Quantity
from cloud.wire.reading_records import RAW_TOPIC, READING_TOPIC_PREFIX
from drivers.option_docs import Meaning
from gateway.config.source import Source
from gateway.config.values import Ends

_AS_UCUM: Final = str.maketrans({"²": "2", "³": "3", "µ": "u", "μ": "u", "Ω": "Ohm", "·": ".", " ": ""})


def _name(name: str) -> str:
    if NAME.fullmatch(name) is None:
        like = "_".join(name.lower().replace("-", " ").split())
        message = f"must be 1 to 64 small letters, digits and underscores, not {quote(name)}"
        raise WrongValue(message, like if NAME.fullmatch(like) else None)
    if f"{READING_TOPIC_PREFIX}{name}" == RAW_TOPIC:
        raise WrongValue(f"must not be {quote(name)}: {RAW_TOPIC} is for other devices' raw messages")
    if name in QUANTITIES:
        unit = QUANTITIES[name].unit
        raise WrongValue(f"{quote(name)} is built in, in {unit}: delete this table, or choose another name")
    return name


def _unit(unit: str) -> str:
    if not (0 < len(unit) <= 32 and unit.isascii() and unit.isprintable() and " " not in unit):
        like = unit.replace("°C", "Cel").replace("°", "deg").translate(_AS_UCUM)
        message = f'must be a unit as UCUM has it, such as "Cel", "m3/h" or "1" for none, not {quote(unit)}'
        raise WrongValue(message, like if like.isascii() and like and like != unit else None)
    return unit


@dataclass(frozen=True, slots=True)
class QuantityConfig:
    """A quantity of this config's own."""

    name: Annotated[
        str, checked(_name), Meaning("small letters, digits, underscores; in the channel's name and topic")
    ]
    unit: Annotated[str, checked(_unit), Meaning('as UCUM writes it, such as "Cel", "m3/h" or "1" for none')]
    range: Annotated[
        Ends, Meaning("[lower, upper]: what can occur; beyond it quality is 4", "the quantity's unit")
    ]
    kind: Annotated[
        Kind, Meaning("how values are put together: by mean, as angles, by sum, by time, as distances")
    ] = "linear"


def read_quantities(source: Source) -> Quantities:
    """All quantities that a config may name: those built in, then its own as far as they could be read."""
    known = dict(QUANTITIES)
    for path, raw in source.tables("quantity"):
        given = source.model(QuantityConfig, raw, path)
        if given is None:
            continue
        if given.kind == "direction" and given.unit != "deg":
            source.error((*path, "unit"), f'must be "deg" of kind = "direction", not {quote(given.unit)}')
        if given.name in known and given.name not in QUANTITIES:
            source.error((*path, "name"), f"{quote(given.name)} is a second quantity's name: keep one")
        known.setdefault(given.name, Quantity(given.name, given.unit, given.kind, *given.range))
    return known
