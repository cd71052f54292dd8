"""The switch over an organisation's calls to models."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """One organisation's switch.

    Attributes:
        org: The organisation.
        enabled: Whether calls may be made for it.
        updated_at: When it was last switched, UTC; None when nobody did.
        updated_by: Subject that last switched it.
        version: Rises with each switching.
    """

    org: str
    enabled: bool = True
    updated_at: datetime | None = None
    updated_by: str = ""
    version: int = 0
