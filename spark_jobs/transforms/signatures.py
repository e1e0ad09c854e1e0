"""The signatures of Kafka records in Arrow batches, of gateways each of whose records must have one."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cloud.wire.identities import Identities
from cloud.wire.signatures import Signature, signature

DIGEST: Final = "digest"
"""The column with the SHA-256 of values as Kafka has them, which Avro isn't any more once it is JSON."""


def digested(batch: Any, identities: Identities) -> Any:
    """The batch with ``DIGEST``, where some of ``identities`` must sign; else as it is."""
    if not identities.strict:
        return batch
    digests = [None if value is None else sha256(value).digest() for value in batch["value"].to_pylist()]
    return batch.append_column(DIGEST, pa.array(digests, pa.binary()))


def signatures_of(batch: Any) -> list[Signature | None]:
    """Those of its records (with the columns topic, key and headers); None of each without ``DIGEST``."""
    if DIGEST not in batch.schema.names:
        return [None] * batch.num_rows
    headers = batch["headers"]
    inside = headers.flatten()
    named = list(zip(*(inside.field(name).to_pylist() for name in ("key", "value")), strict=True))
    made, begin = [], 0
    columns = (batch[name].to_pylist() for name in ("topic", "key", DIGEST))
    for topic, key, digest, number in zip(
        *columns, pc.list_value_length(headers).fill_null(0).to_pylist(), strict=True
    ):
        made.append(signature(topic, key, digest, named[begin : begin + number]))
        begin += number
    return made
