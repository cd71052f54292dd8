"""What the embedded engine lets an analysis read: its users file, and the scope that a statement is signed for.

The engine has one user, two roles and no access storage that could be written, so what a role may read is fixed when it
opens. `loom_analyst` reads the allowlisted columns, each row of them only where the filter of its table finds the scope
of the running statement in its `log_comment`, signed with a key that is drawn at each open and kept in memory and in
this file alone. Everything else runs as `loom_admin`, for which each filter holds at once.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from typing import Final
from xml.sax.saxutils import escape

from loom_common.analysis import AnalysisTable

ADMIN_ROLE: Final = "loom_admin"
ANALYST_ROLE: Final = "loom_analyst"

_KEY_BYTES: Final = 32
_SIGNATURE_CHARACTERS: Final = 64
# Behind the signature comes one character that parts it from what is signed; the engine counts from 1.
_PAYLOAD_AT: Final = _SIGNATURE_CHARACTERS + 2

_COMMENT: Final = "toString(getSetting('log_comment'))"
_PAYLOAD: Final = f"substring({_COMMENT}, {_PAYLOAD_AT})"

SYSTEM_TABLES_READABLE: Final = frozenset({"one", "numbers", "numbers_mt", "zeros", "zeros_mt"})
"""System tables that tell of nothing."""


@dataclass(frozen=True, slots=True)
class SignedScope:
    """What one statement may read.

    Attributes:
        org: Organisation.
        namespaces: Namespaces of it.
        expires_at_s: When the signature ends, in seconds since 1970.
        tag: Mark of the statement: operation, request and a nonce.
    """

    org: str
    namespaces: tuple[str, ...]
    expires_at_s: int
    tag: str

    def payload(self) -> str:
        """Returns the text that is signed."""
        held = {"org": self.org, "ns": list(self.namespaces), "exp": self.expires_at_s, "tag": self.tag}
        return json.dumps(held, ensure_ascii=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class AnalystKey:
    """The key that scopes are signed with."""

    value: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(_KEY_BYTES))

    def sign(self, scope: SignedScope) -> str:
        """Returns the `log_comment` under which a statement reads a scope."""
        payload = scope.payload()
        return f"{hmac.new(self.value, payload.encode(), hashlib.sha256).hexdigest()} {payload}"


def row_filter(table: AnalysisTable, key: AnalystKey) -> str:
    """Returns the condition over a row of a table: any row for an admin, for an analyst the signed scope's live ones.

    What it says of the sorting key's columns stands in terms of its own. A term over another column is looked at after
    the rows of one key became one, and a whole condition with it; a term over the key alone is looked at before, and
    leaves out the parts of other organisations without reading them.

    Source: measured on the embedded engine 26.9, 500,000 rows of 1,000 organisations: 4,096 rows read instead of all.
    """
    admin = f"has(currentRoles(), '{ADMIN_ROLE}')"
    signed = f"lower(hex(HMAC('sha256', {_PAYLOAD}, unhex('{key.value.hex()}')))) = substring({_COMMENT}, 1, 64)"
    unexpired = f"JSONExtractUInt({_PAYLOAD}, 'exp') > toUnixTimestamp(now())"
    return (
        f"({admin} OR org = JSONExtractString({_PAYLOAD}, 'org')) "
        f"AND ({admin} OR has(JSONExtract({_PAYLOAD}, 'ns', 'Array(String)'), namespace)) "
        f"AND ({admin} OR (({table.live}) AND {unexpired} AND {signed}))"
    )


def render_users_file(tables: Iterable[AnalysisTable], database: str, key: AnalystKey) -> str:
    """Returns the engine's users file.

    Args:
        tables: The allowlist.
        database: Database that holds the tables.
        key: Key that the filters check signatures with.
    """
    admitted = sorted(tables, key=lambda table: table.name)
    grants = [
        f"GRANT SELECT({', '.join(table.column_names)}) ON {database}.{table.name} TO {ANALYST_ROLE}"
        for table in admitted
    ]
    filters = {database: {table.name: row_filter(table, key) for table in admitted}}
    filters["system"] = dict.fromkeys(system_tables(), f"has(currentRoles(), '{ADMIN_ROLE}')")
    return _document(grants, filters)


def system_tables() -> list[str]:
    """Returns the system tables that an analyst sees empty; a test holds the list against the engine's own."""
    text = resources.files("loom_common.clickhouse").joinpath("system_tables.txt").read_text("utf-8")
    return [name for name in text.split() if name not in SYSTEM_TABLES_READABLE]


def _document(grants: Iterable[str], filters: dict[str, dict[str, str]]) -> str:
    databases = "".join(
        f"<{database}>"
        + "".join(f"<{table}><filter>{escape(text)}</filter></{table}>" for table, text in tables.items())
        + f"</{database}>\n"
        for database, tables in filters.items()
    )
    analyst = "".join(f"<query>{escape(_without_target(grant))}</query>\n" for grant in grants)
    return (
        "<clickhouse>\n<profiles><default/></profiles>\n<quotas><default/></quotas>\n"
        f"<roles>\n<{ADMIN_ROLE}><grants><query>GRANT ALL ON *.* WITH GRANT OPTION</query></grants></{ADMIN_ROLE}>\n"
        f"<{ANALYST_ROLE}><grants>\n{analyst}</grants></{ANALYST_ROLE}>\n</roles>\n"
        "<users><default>\n<no_password/><networks><ip>::/0</ip></networks>\n"
        "<profile>default</profile><quota>default</quota>\n"
        f"<grants><query>GRANT {ADMIN_ROLE}, {ANALYST_ROLE}</query></grants>\n"
        f"<databases>\n{databases}</databases>\n</default></users>\n</clickhouse>\n"
    )


def _without_target(grant: str) -> str:
    """Returns a grant as the users file wants it, which says by its place whom it is for."""
    return grant.removesuffix(f" TO {ANALYST_ROLE}")
