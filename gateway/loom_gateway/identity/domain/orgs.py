"""Organisations, and the people and programs that they know."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Org:
    """One organisation.

    Attributes:
        name: Name that requests and tokens use.
        display_name: What people call it.
        created_at: When it was made, UTC.
        created_by: Subject that made it.
        updated_at: When it was last changed, UTC.
        version: Rises with each change.
    """

    name: str
    display_name: str
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int


@dataclass(frozen=True, slots=True)
class Account:
    """One person or program, as an organisation knows it.

    Attributes:
        org: The organisation.
        subject: Subject.
        display_name: What people call it.
        email: Address that its identity provider verified; empty where none was.
        disabled: Whether it may not come in.
        created_at: When it was made known, UTC.
        updated_at: When it was last changed, UTC.
        updated_by: Subject that did.
        version: Rises with each change.
    """

    org: str
    subject: str
    display_name: str
    email: str
    disabled: bool
    created_at: datetime
    updated_at: datetime
    updated_by: str
    version: int
