"""The ClickHouse engine inside this process: opening it on its directory, and single handles to it.

Importing this module loads the engine. That changes signal handlers and the working directory for a moment, so it
belongs on the main thread, before anything else runs.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import chdb
from clickhouse_connect.driver.binding import bind_query, quote_identifier

from loom_common.analysis import allowlist
from loom_common.clickhouse.analyst_access import AnalystKey, render_users_file
from loom_common.clickhouse.dataframes import leave_dataframes_out
from loom_common.clickhouse.directory import DataDirectory, StorageStartError
from loom_common.clickhouse.engine_config import EngineLimits, render_engine_config

logger = logging.getLogger(__name__)

leave_dataframes_out()

CONFIG_FILE = "loom-engine.xml"
USERS_FILE = "loom-users.xml"

_INSERT_BUFFER_BYTES = 1 << 20

_KILL = "KILL QUERY WHERE Settings['log_comment'] = {log_comment:String} ASYNC"


class EngineOpenFailed(StorageStartError):
    """The engine refused a directory that passed every check of ours; its reason is in the log."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"the database engine could not open {path}; its own reason is on stderr")


class EngineHandle:
    """One connection to the engine, for one statement at a time.

    It remembers its database and its settings and sends only what differs, so that pooled handles carry nothing
    from one statement to the next.
    """

    def __init__(self, connection: chdb.state.sqlitelike.Connection) -> None:
        self._connection = connection
        self._database = ""
        self._settings: dict[str, str] = {}

    def execute(
        self,
        sql: str | bytes,
        output_format: str = "TabSeparated",
        *,
        parameters: Mapping[str, str] | None = None,
        database: str = "",
        settings: Mapping[str, object] | None = None,
    ) -> bytes:
        """Runs one statement and returns its result in `output_format`; parameters are in the engine's text form.

        Raises:
            RuntimeError: The engine refused it; its text has code and name.
        """
        self._prepare(database, settings or {})
        text = sql if isinstance(sql, str) else sql.decode()
        return bytes(self._connection.query(text, output_format, params=dict(parameters or {})).bytes() or b"")

    def command(
        self, sql: str, parameters: Mapping[str, object], database: str, settings: Mapping[str, object]
    ) -> None:
        """Runs one statement without result, with Python values as parameters."""
        bound, texts = bind_query(sql, dict(parameters))
        self.execute(bound, parameters=without_prefix(texts), database=database, settings=settings)

    def insert(
        self,
        statement: str,
        input_format: str,
        chunks: Iterable[bytes],
        *,
        log_comment: str = "",
        database: str = "",
        settings: Mapping[str, object] | None = None,
    ) -> int:
        """Runs an INSERT over chunks of `input_format` and returns how many rows were written; all or nothing.

        The rows go through a file that only exists in memory: the engine's streaming inserter says that it wrote rows
        which a full disk did not take, and the driver's own insert leaves them in a temporary file on disk.

        Args:
            statement: `INSERT INTO <table> (<columns>)`, and nothing behind it.
            input_format: Format of the chunks, such as `Native`.
            chunks: The rows.
            log_comment: Mark of the statement; empty for none.
            database: Database of an unqualified table.
            settings: Settings of the statement.

        Raises:
            RuntimeError: The engine refused statement or data, or could not store it.
        """
        self._prepare(database, settings or {})
        with open(os.memfd_create("loom-insert"), "w+b", buffering=_INSERT_BUFFER_BYTES) as rows:
            for chunk in chunks:
                rows.write(chunk)
            rows.flush()
            marked = f" SETTINGS log_comment = {quoted(log_comment)}" if log_comment else ""
            source = f"{statement} FROM INFILE '/proc/self/fd/{rows.fileno()}'{marked} FORMAT {input_format}"
            return int(self._connection.query(source, "TabSeparated").rows_read())

    def kill(self, log_comment: str) -> None:
        """Asks the engine to end the statement with this mark; returns without waiting for its end."""
        self.command(_KILL, {"log_comment": log_comment}, "", {})

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _prepare(self, database: str, settings: Mapping[str, object]) -> None:
        if database and database != self._database:
            self._connection.query(f"USE {quote_identifier(database)}", "TabSeparated")
            self._database = database
        wanted = {name: str(value) for name, value in settings.items()}
        changes = {name: quoted(value) for name, value in wanted.items() if self._settings.get(name) != value}
        changes.update({name: "DEFAULT" for name in self._settings if name not in wanted})
        if not changes:
            return
        try:
            self._connection.query(
                "SET " + ", ".join(f"{name} = {text}" for name, text in changes.items()), "TabSeparated"
            )
        except RuntimeError:
            self._reset(changes)
            raise
        self._settings = wanted

    def _reset(self, names: Iterable[str]) -> None:
        """Takes back what a SET that failed half way may have set; a name that the engine does not know stays unset."""
        for name in names:
            self._settings.pop(name, None)
            with suppress(RuntimeError):
                self._connection.query(f"SET {name} = DEFAULT", "TabSeparated")


class EmbeddedEngine:
    """The engine, open on one data directory; one per process, whatever the number of databases and pools."""

    def __init__(
        self, directory: DataDirectory, connection_options: Mapping[str, str], analyst_key: AnalystKey, database: str
    ) -> None:
        self.directory = directory
        self.analyst_key = analyst_key
        self.analyst_database = database
        self.options = dict(connection_options)
        self._connection_string = f"{os.path.realpath(directory.engine_path)}?{urlencode(self.options)}"
        self._keeper: EngineHandle | None = None

    @classmethod
    def open(cls, path: Path, limits: EngineLimits, *, min_free_bytes: int, database: str = "loom") -> "EmbeddedEngine":
        """Holds the directory and opens the engine on it; analyses read `database` and no other.

        Raises:
            StorageStartError: The directory is held, full or unusable, or the engine refused it.
        """
        directory = DataDirectory(path.absolute(), min_free_bytes=min_free_bytes)
        directory.hold()
        config = directory.engine_path / CONFIG_FILE
        config.touch(mode=0o600)
        key = AnalystKey()
        users = directory.engine_path / USERS_FILE
        # Anew each time: the file holds the key that this open draws.
        users.unlink(missing_ok=True)
        users.touch(mode=0o600)
        users.write_text(render_users_file(allowlist().values(), database, key))
        config.write_text(render_engine_config(limits, str(users)))
        engine = cls(directory, {"config-file": str(config)}, key, database)
        try:
            engine._keeper = engine.open_handle()
        except RuntimeError as error:
            logger.exception("engine_open_failed")
            directory.release()
            raise EngineOpenFailed(path) from error
        return engine

    @property
    def path(self) -> str:
        """Directory of the engine's own files."""
        return str(self.directory.engine_path)

    def open_handle(self) -> EngineHandle:
        """Opens another handle; about half a millisecond."""
        return EngineHandle(chdb.connect(self._connection_string))

    def close(self) -> None:
        """Closes the engine and gives the directory up; every other handle must be closed before."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        self.directory.release()


def without_prefix(parameters: Mapping[str, str]) -> dict[str, str]:
    """Returns bound parameters under their bare names, which the engine wants, instead of HTTP's `param_` names."""
    return {name.removeprefix("param_"): value for name, value in parameters.items()}


def quoted(value: str) -> str:
    """Returns a SQL string literal; only for SETTINGS values, which cannot be bound."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
