"""The tables of profiles, of procedures and of their vectors as an erasure sees them.

A section or a procedure goes with its user, and a version that was taken from a memory goes with that memory. The
vectors are found by what they are of, and go first.
"""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable

_ERASED: Final = "{memories:Array(Tuple(String, String, String, String))}"
_BEFORE: Final = "updated_at <= {started_at:DateTime64(3, 'UTC')}"
_OF_USER: Final = f"{IN_ORG} AND user_id = {{user_id:String}} AND {_BEFORE}"


def _rests_on(evidence: str) -> str:
    return f"arrayExists(one -> has({_ERASED}, (toString(namespace), one.1, one.2, one.3)), {evidence})"


_VECTORS_OF_USER: Final = f"""{IN_ORG} AND {_BEFORE} AND (user_id = {{user_id:String}}
    OR plane = 'turn' AND user_id = ''
    AND actor IN (concat('human:', {{user_id:String}}), concat('process:', {{user_id:String}})))"""
_OF_MEMORIES: Final = f"{IN_ORG} AND {_BEFORE} AND {_rests_on('evidence')}"
_VECTORS: Final = f"""{IN_ORG} AND {_BEFORE} AND ((namespace, plane, item_id) IN (
    SELECT namespace, 'profile', section_id FROM (
        SELECT namespace, section_id, argMax(evidence, revision) AS shown FROM profile_sections FINAL
        WHERE {IN_ORG} GROUP BY namespace, section_id
    ) WHERE {_rests_on("shown")}
) OR (namespace, plane, item_id) IN (
    SELECT namespace, 'procedure', procedure_id FROM procedures FINAL WHERE {IN_ORG} AND {_rests_on("evidence")}
))"""
_OUTCOMES: Final = f"""{IN_ORG} AND recorded_at <= {{started_at:DateTime64(3, 'UTC')}}
    AND actor IN (concat('human:', {{user_id:String}}), concat('process:', {{user_id:String}}))"""
_SCHEMA_BY: Final = f"""{IN_ORG} AND {_BEFORE}
    AND actor IN (concat('human:', {{user_id:String}}), concat('process:', {{user_id:String}}))"""
_NOBODY: Final = "actor = 'human:erased'"

CENSUS: Final = (
    HeldTable("item_vectors", of_user=_VECTORS_OF_USER, of_memories=_VECTORS),
    HeldTable("profile_sections", of_user=_OF_USER, of_memories=_OF_MEMORIES),
    HeldTable("profile_schemas", of_user=_SCHEMA_BY, scrubbed=_NOBODY, names_only=True),
    HeldTable("procedures", of_user=_OF_USER, of_memories=_OF_MEMORIES),
    HeldTable("procedure_outcomes", of_user=_OUTCOMES, scrubbed=_NOBODY, names_only=True),
)
