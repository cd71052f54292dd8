"""What a ClickHouse server holds for analyses, as statements in the order in which they are written.

The order is what keeps it safe at every moment of a write: each table has its policies before anything of it is
granted, the profile's pins are there before the grants that they guard, and the version comes last, so that a write
that was cut short is seen as one.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from loom_common.analysis import AnalysisTable
from loom_insights.domain.analysis import AnalysisLimits

ANALYST: Final = "loom_analyst"
PROFILE: Final = "loom_analyst_profile"
CAPS_PROFILE: Final = "loom_analyst_caps"
SCOPE_POLICY: Final = "loom_analysis_scope"
OTHERS_POLICY: Final = "loom_analysis_others"
CANARY: Final = "analysis_canary"

PREFIXES: Final = ("SQL_", "custom_")
"""Prefixes of settings of one's own: ClickHouse's default, then ClickHouse Cloud's."""

VERSION: Final = 1
"""Number of this set of grants and policies; one more for each change of either, which a test pins."""

LOG_TEXT_CUT: Final = {"log_queries_cut_to_length": 1, "log_formatted_queries": 0}
"""Settings under which a statement that carries a secret is logged without its text."""

# A hash's block, as HMAC pads its key.
_BLOCK_BYTES: Final = 64

PINS: Final[Mapping[str, str | int]] = {
    "readonly": 2,
    "final": 1,
    "apply_row_policy_after_final": 1,
    "use_query_cache": 0,
    "use_query_condition_cache": 0,
    "send_logs_level": "none",
    "result_overflow_mode": "throw",
    "read_overflow_mode": "throw",
    "timeout_overflow_mode": "throw",
    "allow_introspection_functions": 0,
    **LOG_TEXT_CUT,
}
"""What no statement of the analyst can change."""


@dataclass(frozen=True, slots=True)
class ServerSecrets:
    """The key that scopes are signed with, and the analyst's password."""

    key: bytes = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Entities:
    """One whole set: who may read what, on which server.

    Attributes:
        database: Database of the tables.
        tables: The allowlist, without columns that are not there yet.
        prefix: Prefix of settings of one's own that the server takes.
        limits: Caps of one statement.
        concurrent: Most statements of the analyst at once.
        cluster: Cluster that access is written on; empty for a single server, or where access replicates itself.
    """

    database: str
    tables: tuple[AnalysisTable, ...]
    prefix: str
    limits: AnalysisLimits
    concurrent: int
    cluster: str = ""

    @property
    def digest(self) -> str:
        """Digest of the grants and policies, spelled with the default prefix and without any secret."""
        spelled = Entities(self.database, self.tables, PREFIXES[0], self.limits, self.concurrent)
        lines = [*spelled._grants(), *(spelled._condition(table, "KEY") for table in self.tables)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    @property
    def stamp(self) -> str:
        """What the main profile says of which set is written."""
        return f"{VERSION}.{self.digest}"

    def statements(self, secrets: ServerSecrets) -> list[str]:
        """Returns a whole write; the ones that carry a secret run under `LOG_TEXT_CUT`."""
        return [
            *self.user(secrets),
            *self.caps(),
            *self.policies(secrets),
            self._profile(),
            f"ALTER USER {ANALYST}{self._on} SETTINGS PROFILE '{CAPS_PROFILE}', PROFILE '{PROFILE}'",
            f"REVOKE{self._on} ALL ON *.* FROM {ANALYST}",
            *self._grants(),
            self._profile(stamp=self.stamp),
        ]

    def user(self, secrets: ServerSecrets) -> list[str]:
        """Returns what makes the analyst, or gives it the password."""
        identified = f"IDENTIFIED WITH sha256_password BY {quoted(secrets.password)}"
        return [
            f"CREATE USER IF NOT EXISTS {ANALYST}{self._on} {identified}",
            f"ALTER USER {ANALYST}{self._on} {identified} DEFAULT ROLE NONE",
        ]

    def caps(self) -> list[str]:
        """Returns the profile of the deployment's own caps, which is apart from the version."""
        limits = self.limits
        capped = {
            "max_execution_time": limits.time_s,
            "max_rows_to_read": limits.read_rows,
            "max_memory_usage": limits.memory_bytes,
            "max_result_rows": limits.result_rows,
            "max_result_bytes": limits.result_bytes,
            "max_threads": limits.threads,
        }
        held = [f"{name} = {value:g} MAX {value:g}" if isinstance(value, float) else f"{name} = {value} MAX {value}"
                for name, value in capped.items()]  # fmt: skip
        held.append(f"max_concurrent_queries_for_user = {self.concurrent} CONST")
        return [f"CREATE SETTINGS PROFILE OR REPLACE {CAPS_PROFILE}{self._on} SETTINGS {', '.join(held)}"]

    def policies(self, secrets: ServerSecrets) -> Iterator[str]:
        """Yields the policies of each table and of the canary, every other user's first."""
        signed = self._signed(_pads(secrets.key))
        conditions = {table.name: self._condition(table, signed) for table in self.tables}
        conditions[CANARY] = f"({self._scope()}) AND ({signed})"
        for name, condition in conditions.items():
            on = f"ON {self.database}.{name}{self._on}"
            made = "CREATE ROW POLICY OR REPLACE"
            yield f"{made} {OTHERS_POLICY} {on} AS PERMISSIVE FOR SELECT USING 1 TO ALL EXCEPT {ANALYST}"
            yield f"{made} {SCOPE_POLICY} {on} AS PERMISSIVE FOR SELECT USING {condition} TO {ANALYST}"

    def _grants(self) -> list[str]:
        columns = {table.name: ", ".join(table.column_names) for table in self.tables}
        columns[CANARY] = "org, namespace"
        return [
            f"GRANT{self._on} SELECT({names}) ON {self.database}.{table} TO {ANALYST}"
            for table, names in columns.items()
        ]

    def _profile(self, stamp: str = "") -> str:
        pins = [f"{name} = {quoted(value) if isinstance(value, str) else value} CONST" for name, value in PINS.items()]
        stamped = [f"{self.prefix}loom_version = {quoted(stamp)}"] if stamp else []
        return f"CREATE SETTINGS PROFILE OR REPLACE {PROFILE}{self._on} SETTINGS {', '.join([*pins, *stamped])}"

    def _condition(self, table: AnalysisTable, signed: str) -> str:
        return f"({self._scope()}) AND ({table.live}) AND ({signed})"

    def _scope(self) -> str:
        return (
            f"org = {self._sent('org')} AND has(JSONExtract({self._sent('ns')}, 'Array(String)'), namespace) "
            f"AND toUInt64OrZero({self._sent('exp')}) > toUnixTimestamp(now())"
        )

    def _signed(self, pads: tuple[str, str]) -> str:
        inner, outer = pads
        parts = [self._sent("org"), self._sent("ns"), self._sent("exp"), "initialQueryID()"]
        message = ", ".join(f"toString(length({part})), ':', {part}" for part in parts)
        return f"lower(hex(SHA256(concat({outer}, SHA256(concat({inner}, {message})))))) = {self._sent('sig')}"

    def _sent(self, name: str) -> str:
        # As text whatever a statement sets it to, so that no policy raises an error that would quote it.
        return f"toString(getSetting('{self.prefix}loom_{name}'))"

    @property
    def _on(self) -> str:
        return f" ON CLUSTER {quoted(self.cluster)}" if self.cluster else ""


def scope_settings(
    prefix: str, key: bytes, *, org: str, namespaces: Sequence[str], expires_at_s: int, query_id: str
) -> dict[str, str]:
    """Returns the settings that send a statement's scope, signed for its query id alone."""
    sent = {"org": org, "ns": json.dumps(list(namespaces)), "exp": str(expires_at_s)}
    message = b"".join(b"%d:%b" % (len(part), part) for part in map(str.encode, (*sent.values(), query_id)))
    sent["sig"] = hmac.new(key, message, hashlib.sha256).hexdigest()
    return {f"{prefix}loom_{name}": value for name, value in sent.items()}


def quoted(text: str) -> str:
    """Returns a text as a statement writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _pads(key: bytes) -> tuple[str, str]:
    """Returns HMAC's two padded forms of the key, as expressions whose key an error message hides.

    ClickHouse prints the arguments of `decrypt` as hidden, and evaluates it to the pad.
    """
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    return _hidden(bytes(byte ^ 0x36 for byte in padded), key), _hidden(bytes(byte ^ 0x5C for byte in padded), key)


def _hidden(value: bytes, key: bytes) -> str:
    padder = padding.PKCS7(algorithms.AES.block_size).padder()
    # One value under one key, to keep it out of error messages and not from who holds both: no mode adds to that.
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    sealed = encryptor.update(padder.update(value) + padder.finalize()) + encryptor.finalize()
    return f"decrypt('aes-256-ecb', unhex('{sealed.hex()}'), unhex('{key.hex()}'))"
