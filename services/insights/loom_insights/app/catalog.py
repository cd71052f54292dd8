"""What a caller must know to write a statement: tables, columns, rules and limits."""

from dataclasses import dataclass, field
from typing import Final

from loom_common.analysis import AnalysisTable, allowlist
from loom_insights.domain.analysis import AnalysisLimits
from loom_insights.domain.functions import allowed_functions

NOTES: Final = (
    "One SELECT in ClickHouse's SQL; tables by their bare names; name the columns, since `*` stands for some that "
    "cannot be read.",
    "Only rows of the namespaces that the call names are there, whatever a condition says; deleted rows are not.",
    "Tables of `one_per_key` hold the present state, one row for each thing; tables of `one_per_event` grow by one row "
    "for each event.",
    "Times are UTC. `now() - INTERVAL 7 DAY` is a week ago; `toStartOfWeek(t, 1)` begins on Monday.",
    "A memory is one row by namespace, user_id, session_id and memory_key: join on all four.",
    "`request_id` joins memory_exposures with agent_events, so that what was shown can be set against what it cost.",
    "SETTINGS, FORMAT, PREWHERE, parameters, dictionaries and table functions but numbers() are refused.",
    "An answer is whole or an error that names the limit; nothing is cut off.",
)


@dataclass(frozen=True, slots=True)
class Catalog:
    """What `insights.catalog` shows.

    Attributes:
        limits: Limits of one statement.
        concurrent_per_org: Statements of one organisation at once.
        concurrent: Statements of all at once.
        tables: Tables, by name.
        notes: Rules, one sentence each.
        functions: Functions that may be called, by name.
    """

    limits: AnalysisLimits
    concurrent_per_org: int
    concurrent: int
    tables: tuple[AnalysisTable, ...] = field(default_factory=lambda: tuple(allowlist().values()))
    notes: tuple[str, ...] = NOTES
    functions: tuple[str, ...] = field(default_factory=lambda: tuple(sorted(allowed_functions())))
