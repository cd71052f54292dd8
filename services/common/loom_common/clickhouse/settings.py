"""Settings of the store: which engine, and what it may take."""

from pydantic import Field, SecretStr

from loom_common.clickhouse.commit import CommitLimits
from loom_common.clickhouse.engine_config import EngineLimits
from loom_common.settings import LoomSettings


class ClickHouseSettings(LoomSettings):
    """Where ClickHouse is, which database is Loom's, and the bounds of its use."""

    url: SecretStr = Field(
        default=SecretStr(""),
        alias="LOOM_CLICKHOUSE_URL",
        description="Engine to use: `chdb:///<data dir>` for the engine inside the process, "
        "`http(s)://user:password@host:port/database` for a server. Default: the data directory's own engine.",
    )
    database: str = Field(
        default="loom",
        alias="LOOM_CLICKHOUSE_DATABASE",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$",
        description="Database that holds Loom's tables; made where absent. A database in the URL wins.",
    )
    cluster: str = Field(
        default="",
        alias="LOOM_CLICKHOUSE_CLUSTER",
        pattern=r"^[A-Za-z0-9_.-]*$",
        description="Name of the cluster to replicate tables on; empty for a single engine.",
    )
    pool_size: int = Field(
        default=4,
        alias="LOOM_CLICKHOUSE_POOL_SIZE",
        ge=1,
        le=64,
        description="Statements that run at the same time, 1 to 64; for a server, connections.",
    )
    memory_bytes: int = Field(
        default=4 << 30,
        alias="LOOM_CLICKHOUSE_MEMORY_BYTES",
        ge=512 << 20,
        description="Memory of the embedded engine and the process around it, in bytes; at least 512 MiB.",
    )
    query_memory_bytes: int = Field(
        default=1 << 30,
        alias="LOOM_CLICKHOUSE_QUERY_MEMORY_BYTES",
        ge=64 << 20,
        description="Memory of one statement, in bytes; at least 64 MiB.",
    )
    cache_bytes: int = Field(
        default=128 << 20,
        alias="LOOM_CLICKHOUSE_CACHE_BYTES",
        ge=1 << 20,
        description="Most memory of each of the embedded engine's caches, in bytes.",
    )
    min_free_bytes: int = Field(
        default=256 << 20,
        alias="LOOM_CLICKHOUSE_MIN_FREE_BYTES",
        ge=0,
        description="Free space that the data directory must have at start, in bytes.",
    )
    query_timeout_s: float = Field(
        default=30.0,
        alias="LOOM_CLICKHOUSE_QUERY_TIMEOUT_S",
        gt=0,
        le=3600,
        description="Time of one statement that names no limit of its own, in seconds.",
    )
    insert_timeout_s: float = Field(
        default=60.0,
        alias="LOOM_CLICKHOUSE_INSERT_TIMEOUT_S",
        gt=0,
        le=3600,
        description="Time of one joint insert, in seconds.",
    )
    connect_timeout_s: float = Field(
        default=5.0,
        alias="LOOM_CLICKHOUSE_CONNECT_TIMEOUT_S",
        gt=0,
        le=300,
        description="Time to reach a server, in seconds.",
    )
    insert_batch_rows: int = Field(
        default=5_000,
        alias="LOOM_CLICKHOUSE_INSERT_BATCH_ROWS",
        ge=1,
        description="Most rows that are joined into one insert.",
    )
    insert_waiting_rows: int = Field(
        default=50_000,
        alias="LOOM_CLICKHOUSE_INSERT_WAITING_ROWS",
        ge=1,
        description="Most rows that may wait for one table before writers are refused.",
    )
    insert_waiting_bytes: int = Field(
        default=256 << 20,
        alias="LOOM_CLICKHOUSE_INSERT_WAITING_BYTES",
        ge=1 << 20,
        description="Most memory that rows may take which wait for one table, in bytes, before writers are refused; at "
        "least 1 MiB.",
    )

    def engine_limits(self) -> EngineLimits:
        """Returns what the embedded engine may take."""
        return EngineLimits(memory_bytes=self.memory_bytes, cache_bytes=self.cache_bytes)

    def commit_limits(self) -> CommitLimits:
        """Returns the bounds of each table's committer."""
        return CommitLimits(
            batch_rows=self.insert_batch_rows,
            waiting_rows=self.insert_waiting_rows,
            waiting_bytes=self.insert_waiting_bytes,
        )
