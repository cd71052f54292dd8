"""Every table of embedding, and what it can hold of a user or a memory."""

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable, shared_tables
from loom_embedding.store.vectors import TABLE

# A vector is kept under a digest that names neither text nor user: those of the organisation go. They are made again.
_OF_ORG: Final = "org = {org:String} AND version <= {upto:UInt64}"
# Pairs that a namespace was calibrated with may quote its memories; what was derived from them says nothing.
_PAIRS: Final = f"{IN_ORG} AND version <= {{upto:UInt64}} AND notEmpty(similar_one)"
_NO_PAIRS: Final = "similar_one = [], similar_other = [], distractor_one = [], distractor_other = []"

CENSUS: Final = (
    *shared_tables("embedding"),
    HeldTable(TABLE.name, of_user=_OF_ORG, of_memories=_OF_ORG),
    HeldTable("namespace_calibration_result", of_user=_PAIRS, of_memories=_PAIRS, scrubbed=_NO_PAIRS),
    HeldTable("embedder_calibration", no_memory_content="figures of built-in texts"),
)
