"""Migration files as text: finding them, filling their templates in, cutting them into statements."""

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from clickhouse_connect.driver.binding import quote_identifier

from loom_common.clickhouse import StorageStartError

_FILE: Final = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_TEMPLATE: Final = re.compile(r"\{([a-z_]+)(?::([a-z_]+))?\}")
_UNGUARDED: Final = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:TABLE|MATERIALIZED\s+VIEW|VIEW)\s+(?!IF\s+NOT\s+EXISTS\b)"
    r"|\bADD\s+(?:COLUMN|INDEX|PROJECTION)\s+(?!IF\s+NOT\s+EXISTS\b)"
    r"|\bDROP\s+(?:TABLE|VIEW|COLUMN|INDEX)\s+(?!IF\s+EXISTS\b)",
    re.IGNORECASE,
)


class MigrationInvalid(StorageStartError):
    """A migration file breaks a rule of the house; a mistake of this build, not of the operator."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name, its text as written and that text's checksum."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """The sha256 of the text as written, in hex; the same for every engine that it is rendered for."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def statements(self, cluster: str) -> list[str]:
        """Returns the statements for a single engine, or for the named cluster.

        Raises:
            MigrationInvalid: A template is not known.
        """
        return split_statements(render(self.text, cluster))


def find_migrations(package: str) -> list[Migration]:
    """Returns the migrations in `<package>/migrations`, by number.

    Raises:
        MigrationInvalid: The numbers are not 1, 2, 3, ... or a statement could not run twice.
    """
    found: list[Migration] = []
    for entry in files(package).joinpath("migrations").iterdir():
        match = _FILE.match(entry.name)
        if match:
            found.append(Migration(int(match.group(1)), match.group(2), entry.read_text(encoding="utf-8")))
        elif entry.name.endswith(".sql"):
            raise MigrationInvalid(f"{package}: {entry.name} is not named NNNN_name.sql")
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise MigrationInvalid(f"{package}: migration numbers must be 0001, 0002, ... without gap or repeat")
    for migration in found:
        # A file whose third statement failed is run again from its first.
        if _UNGUARDED.search(migration.text):
            raise MigrationInvalid(f"{package}: {migration.version:04d} must say IF [NOT] EXISTS")
    return found


def render(text: str, cluster: str) -> str:
    """Fills in `{replacing:<version column>}`, `{mergetree}` and `{on_cluster}`.

    Raises:
        MigrationInvalid: Another template stands in the text.
    """
    replicated = "Replicated" if cluster else ""

    def fill(match: re.Match[str]) -> str:
        match (match.group(1), match.group(2)):
            case ("replacing", str(column)):
                return f"{replicated}ReplacingMergeTree({column})"
            case ("mergetree", None):
                return f"{replicated}MergeTree"
            case ("on_cluster", None):
                return f"ON CLUSTER {quote_identifier(cluster)}" if cluster else ""
            case _:
                raise MigrationInvalid(f"unknown template {match.group(0)} in a migration")

    return _TEMPLATE.sub(fill, text)


# One alternative per thing that may hold a semicolon which ends nothing.
_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" | `(?:[^`\\]|\\.)*` | --[^\n]* | /\*.*?\*/ | ; | [^'"`;/-]+ | .""",
    re.VERBOSE | re.DOTALL,
)


def split_statements(text: str) -> list[str]:
    """Cuts the text at semicolons outside quotes and comments; comments and empty statements are left out."""
    statements: list[str] = []
    current: list[str] = []
    for part in _TOKEN.findall(text):
        if part == ";":
            statements.append("".join(current).strip())
            current = []
        elif part.startswith(("--", "/*")):
            current.append(" ")
        else:
            current.append(part)
    statements.append("".join(current).strip())
    return [statement for statement in statements if statement]
