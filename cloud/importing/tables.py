"""The tables that are written, as the jobs make them, without a JVM: delta-rs, optimistic commits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from cloud.backoff import backoff_s
from cloud.config import StoreConfig
from cloud.errors import CloudError
from cloud.lake.object_store import for_delta, for_delta_rs, in_words
from cloud.wire import lake_tables
from cloud.wire.lake_tables import LakeTable

TIMES: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(), "time": TIMES, "date": pa.date32(), "long": pa.int64(), "int": pa.int32(),
    "double": pa.float64(), "bool": pa.bool_(), "binary": pa.binary(), "strings": pa.list_(pa.string()),
    "string map": pa.map_(pa.string(), pa.string()), "double map": pa.map_(pa.string(), pa.float64()),
}  # fmt: skip
_ATTEMPTS: Final = 8
# Neither checkpoints nor the log's clean-up: those are the jobs'.
_COMMIT_ONLY: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

QUARANTINE: Final = replace(lake_tables.QUARANTINE, key=("source",))
"""The jobs only add rows to it; an import merges: each bad line is there once."""


def schema_of(table: LakeTable) -> Any:
    """A table's columns with Arrow's types."""
    types = _TYPES | {
        name: pa.list_(pa.struct([(each, _TYPES[kind]) for each, kind in inner.items()]))
        for name, inner in table.structs.items()
    }
    return pa.schema([(name, types[kind]) for name, kind in table.columns.items()])


_T = TypeVar("_T")


class WriteError(CloudError):
    """A table can't be written; the message names the remedy."""


class LakeTables:
    """A lake's tables for one writer. One thread uses it."""

    def __init__(self, uri: str, store: StoreConfig | None = None) -> None:
        self._uri = for_delta(uri).rstrip("/")
        self._store = store
        self._options = for_delta_rs(store)

    def _open(self, table: LakeTable) -> DeltaTable | None:
        try:
            there = DeltaTable(f"{self._uri}/{table.name}", storage_options=self._options)
        except TableNotFoundError:
            return None
        names = {field.name for field in there.schema().fields}
        if missing := [name for name in table.columns if name not in names]:
            raise WriteError(
                f"table {table.name} of the lake {self._uri} lacks {', '.join(missing)}: another version of "
                "fieldgate made it. Move the lake and its checkpoints away, let the jobs make them anew, and "
                "import again"
            )
        return there

    def rows(self, table: LakeTable, columns: Sequence[str], condition: Any) -> Iterator[tuple[Any, ...]]:
        """Columns of rows that meet a condition of pyarrow's datasets; none where there is no table.

        Times are in microseconds since the epoch. Raises WriteError.
        """
        there = self._guarded(table, lambda: self._open(table))
        if there is None:
            return iter(())
        dataset = there.to_pyarrow_dataset()
        found = self._guarded(table, lambda: dataset.to_table(columns=list(columns), filter=condition))
        return zip(*(_plain(found[name]) for name in columns), strict=True)

    def _made(self, table: LakeTable) -> DeltaTable:
        configuration = {
            "delta.enableDeletionVectors": "false",
            "delta.enableChangeDataFeed": str(table.change_feed).lower(),
            "delta.checkpointInterval": "50",
            "delta.logRetentionDuration": "interval 7 days",
        }
        if table.bounds:
            configuration["delta.dataSkippingStatsColumns"] = ",".join(table.bounds)
        return self._open(table) or DeltaTable.create(
            f"{self._uri}/{table.name}",
            schema=Schema.from_arrow(schema_of(table)),
            partition_by=["date"] if table.partitioned_by_date else None,
            configuration=configuration,
            storage_options=self._options,
            mode="ignore",
        )

    def merge(
        self,
        table: LakeTable,
        columns: Mapping[str, Any],
        *,
        update: Mapping[str, str] | None = None,
        where: str | None = None,
        drop: str | None = None,
    ) -> None:
        """Adds rows, given by column, whose key isn't there; of others changes columns by expressions.

        Those that meet ``drop`` are deleted. ``update`` is of rows that meet ``where``, in which the table is
        ``t`` and the rows are ``s``. There is at least one row; they are one commit. Raises WriteError.
        """
        given = pa.table(
            {field.name: pa.array(columns[field.name], field.type)
             for field in schema_of(table) if field.name in columns}
        )  # fmt: skip
        key = (*(["date"] if table.partitioned_by_date else []), *table.key)
        same = " and ".join(f"t.{name} = s.{name}" for name in key)

        def once() -> dict[str, Any]:
            merge = self._made(table).merge(
                given, same, source_alias="s", target_alias="t", post_commithook_properties=_COMMIT_ONLY
            )
            if drop is not None:
                merge = merge.when_matched_delete(drop)
            if update is not None:
                merge = merge.when_matched_update(dict(update), predicate=where)
            return merge.when_not_matched_insert({name: f"s.{name}" for name in given.column_names}).execute()

        self._guarded(table, once)

    def delete(self, table: LakeTable, predicate: str) -> int:
        """Deletes rows of a table; how many they were. Raises WriteError."""

        def once() -> int:
            there = self._open(table)
            if there is None:
                return 0
            done = there.delete(predicate, post_commithook_properties=_COMMIT_ONLY)
            return int(done["num_deleted_rows"])

        return self._guarded(table, once)

    def _guarded(self, table: LakeTable, step: Callable[[], _T]) -> _T:
        """The result of ``step``, done again where another commit came before its own. Raises WriteError."""
        try:
            for attempt in range(1, _ATTEMPTS):
                with suppress(CommitFailedError):
                    return step()
                # Two that wait equally long would meet again.
                time.sleep(backoff_s(attempt, 0.1, 6.4) * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            return step()
        except (OSError, DeltaError) as error:
            reason = in_words(error, self._uri, self._store) or str(error).partition("\n")[0]
            raise WriteError(f"table {table.name} of the lake {self._uri}: {reason}") from error


def _plain(column: Any) -> list[Any]:
    is_time = pa.types.is_timestamp(column.type)
    values: list[Any] = (column.cast(TIMES).cast(pa.int64()) if is_time else column).to_pylist()
    return values
