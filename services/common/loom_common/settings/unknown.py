"""Finds `LOOM_*` variables that nothing reads."""

import re
from collections.abc import Collection, Mapping
from typing import Final

CLIENT_NAMES: Final = frozenset({"LOOM_BASE_URL", "LOOM_API_KEY"})
"""Variables that clients read; a server's environment may hold them."""

TEST_PREFIX: Final = "LOOM_TEST_"
"""Begins the variables of the test suite."""

# A Service named `loom-memory` puts these into every pod of its namespace, whether the pod wants them or not.
KUBERNETES_NAME: Final = re.compile(
    r"LOOM_(?:[A-Z0-9_]*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_[A-Z0-9_]+)?)"
)

# Source: chosen; below it the nearest name is another word, not a slip of the finger.
_MIN_LIKENESS: Final = 70


def first_unknown(environ: Mapping[str, str], known: Collection[str]) -> str | None:
    """Returns one line about the first `LOOM_*` name that is not known, in alphabetical order, or None."""
    for name in sorted(environ):
        if name.startswith("LOOM_") and not _is_known(name, known):
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else "see docs/operations/configuration.md."
            return f"{name} is no setting of Loom; {hint}"
    return None


def nearest(name: str, known: Collection[str]) -> str | None:
    """Returns the known name that is most like `name`, the first of equals in alphabetical order, or None."""
    from rapidfuzz import fuzz, process  # here: a start without a slip of the finger need not wait for it

    found = process.extractOne(name, sorted(known), scorer=fuzz.ratio, score_cutoff=_MIN_LIKENESS)
    return found[0] if found else None


def _is_known(name: str, known: Collection[str]) -> bool:
    return (
        name in known
        or name in CLIENT_NAMES
        or name.startswith(TEST_PREFIX)
        or KUBERNETES_NAME.fullmatch(name) is not None
    )
