"""What a configuration key means, beside its type and bounds in the same annotation.

``Annotated[float, Gt(0), Le(10), Meaning("from the certificate", "m/s per Hz")]`` describes a key completely:
validation, the JSON Schema for editors, the file that ``fieldgate init`` writes and the test of
``docs/configure.md`` read it from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from drivers.interface import Quantity


@dataclass(frozen=True, slots=True)
class Meaning:
    """Half a sentence for the person who fills the key in, and the unit of its value."""

    text: str
    unit: str = ""

    @property
    def description(self) -> str:
        """The text with the unit."""
        return f"{self.text} ({self.unit})" if self.unit else self.text

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """The key's description in a JSON Schema; pydantic calls it, which drivers don't import."""
        return {**handler(schema), "description": self.description}


class _ByName:
    """In the file stands a quantity's name, in the options the quantity that the config has by that name."""

    def __get_pydantic_core_schema__(self, _source: Any, handler: Any) -> dict[str, Any]:
        """Pydantic calls it, which drivers don't import; the context is the config's."""
        find = {"type": "with-info", "function": lambda name, info: info.context.quantity(name)}
        return {"type": "function-after", "function": find, "schema": handler.generate_schema(str)}


MeasuredQuantity = Annotated[
    Quantity, _ByName(), Meaning("what is measured: one of the quantities, or of those in [[quantity]]")
]
"""Options of a driver that measures what its user connects."""

PIN: Final = Meaning("GPIO number of the pin (BCM), not its place on the header")
BcmPin = Annotated[int, Ge(0), Le(27), PIN]
"""A pin of the Raspberry Pi's header."""
Figure = Annotated[float, Ge(-1e9), Le(1e9)]
"""A figure of a transfer function, or a limit, in the quantity's unit."""
