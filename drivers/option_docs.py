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


PIN: Final = Meaning("GPIO number of the pin (BCM), not its place on the header")
BcmPin = Annotated[int, Ge(0), Le(27), PIN]
"""A pin of the Raspberry Pi's header."""
