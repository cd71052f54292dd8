"""Why a search has no hits."""

from typing import Final

NO_MATCH: Final = "no_match"
"""Nothing stored has to do with the question."""

BELOW_FLOOR: Final = "below_floor"
"""What was found is too far from the question to be shown."""

EMPTY_NAMESPACE: Final = "empty_namespace"
"""Nothing is stored that the caller may read."""

EMBEDDER_CHANGED: Final = "embedder_changed"
"""Every vector is of another model than the one that is served, and no word matched."""

PAGE_EXPIRED: Final = "page_expired"
"""The handle of the page has passed its time, or is of another caller."""
