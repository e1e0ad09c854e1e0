"""Values that TOML or JSON gave, against a JSON Schema (draft 7)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft7Validator


def errors(schema: Any, value: Any) -> Iterator[str]:
    """Yields the place of each error: the key that is wrong, missing, or not allowed."""
    # TOML's dates and times are strings to an editor.
    plain = json.loads(json.dumps(value, default=str))
    for error in Draft7Validator(schema).iter_errors(plain):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
        if "propertyNames" in error.absolute_schema_path:
            yield f"{place}.{error.instance}"
        elif error.validator in ("required", "additionalProperties"):
            yield from (f"{place}.{key}" for key in re.findall(r"'(\w+)'", error.message)[:1])
        else:
            yield place
