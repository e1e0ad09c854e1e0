"""Files and folders wherever the lake is: local paths or object stores, by Hadoop's own file systems."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_jobs.platform.java import java_of, java_session


@dataclass(frozen=True)
class Entry:
    """A file or a folder: its name within its folder, and its URI."""

    name: str
    uri: str
    is_folder: bool


class Files:
    """The file system of a Spark session's URIs."""

    def __init__(self, spark: SparkSession) -> None:
        self._java = java_of(spark)
        self._session = java_session(spark)
        self._conf: Any = self._session.sessionState().newHadoopConf()

    def _path(self, uri: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(uri)

    def _system(self, path: Any) -> Any:
        return path.getFileSystem(self._conf)

    def _plain(self, path: Any) -> Any:
        """Without the checksum files that Hadoop keeps beside local ones.

        A reader beside a writer would find the sum of the older text beside the newer one, and fail.
        """
        system = self._system(path)
        if str(system.getUri().getScheme()) != "file":
            return system
        return self._java.org.apache.hadoop.fs.FileSystem.getLocal(self._conf).getRawFileSystem()

    def exists(self, uri: str) -> bool:
        """Whether there is a file or a folder."""
        path = self._path(uri)
        return bool(self._system(path).exists(path))

    def entries(self, uri: str) -> list[Entry]:
        """The files and folders in a folder, by name; none where there is no folder."""
        path = self._path(uri)
        try:
            statuses = self._system(path).listStatus(path)
        except Py4JJavaError as error:
            if _is_missing(error):
                return []
            raise
        paths = ((status.getPath(), status.isDirectory()) for status in statuses)
        found = (Entry(str(path.getName()), str(path.toString()), bool(folder)) for path, folder in paths)
        return sorted(found, key=lambda entry: entry.name)

    def numbers(self, uri: str) -> list[int]:
        """The names in a folder that are numbers, ascending."""
        return sorted(int(entry.name) for entry in self.entries(uri) if entry.name.isdecimal())

    def delete(self, uri: str) -> None:
        """Removes a file or a whole folder, or nothing."""
        path = self._path(uri)
        self._system(path).delete(path, True)

    def modified_ms(self, uri: str) -> int | None:
        """When a file was written (epoch, ms); None where there is none."""
        path = self._path(uri)
        system = self._system(path)
        return int(system.getFileStatus(path).getModificationTime()) if system.exists(path) else None

    def read_bytes(self, uri: str, *, checked: bool = False) -> bytes | None:
        """A small file; None where there is none. A ``checked`` one must match its checksum file."""
        path = self._path(uri)
        system = self._system(path) if checked else self._plain(path)
        try:
            stream = system.open(path)
        except Py4JJavaError as error:
            if _is_missing(error):
                return None
            raise
        with closing(stream):
            return bytes(stream.readAllBytes())

    def write(self, uri: str, content: str | bytes, *, sync: bool = False) -> None:
        """A file, in the place of an older one; with ``sync`` it is on the disk when this returns."""
        path = self._path(uri)
        with closing(self._plain(path).create(path, True)) as stream:
            stream.write(bytearray(content.encode() if isinstance(content, str) else content))
            if sync:
                stream.hsync()

    def make_folder(self, uri: str) -> None:
        """Makes a folder, and those above it, where there is none."""
        path = self._path(uri)
        self._system(path).mkdirs(path)

    def create_new(self, uri: str, text: str) -> bool:
        """A small file of one line where there is none; whether there was none.

        Of several writers one succeeds, by the log store that Delta makes the lake's commits with.
        """
        lines = self._java.java.util.Collections.singletonList(text).iterator()
        lines = self._java.scala.jdk.javaapi.CollectionConverters.asScala(lines)
        store = self._java.org.apache.spark.sql.delta.storage.LogStore.apply(self._session)
        try:
            store.write(self._path(uri), lines, False, self._conf)
        except Py4JJavaError as error:
            if "FileAlreadyExistsException" not in str(error.java_exception):
                raise
            return False
        return True


def _is_missing(error: Py4JJavaError) -> bool:
    # Asked for first, each file in a bucket would cost two more requests.
    return "FileNotFoundException" in str(error.java_exception)
