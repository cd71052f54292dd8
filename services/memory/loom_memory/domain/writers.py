"""Who wrote a text: what decides for whom a job's call to a model is that holds it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple


class Writer(NamedTuple):
    """An actor, in the namespace that it wrote to, for the user that it filed the text under."""

    org: str
    namespace: str
    actor: str
    user_id: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """Whose texts a job leaves as they are for now."""

    orgs: Collection[str] = ()
    """Organisations whose calls are not made at all."""
    writers: Collection[Writer] = ()
    """Writers whose calls are not made; others of their organisations go on."""
    by_user: bool = False
    """Whether the users of a writer are told apart; else no entry of `writers` names one."""


NOBODY = Held()
