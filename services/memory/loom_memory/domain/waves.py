"""Writes of one call that cannot be stored at once, because they are of the same memory."""

from collections.abc import Sequence

from loom_memory.domain.memory import Identity


def waves(identities: Sequence[Identity]) -> list[list[int]]:
    """Returns the places of the identities so that none comes twice in one wave; each keeps its own order."""
    found: list[list[int]] = []
    seen: dict[Identity, int] = {}
    for place, identity in enumerate(identities):
        number = seen.get(identity, 0)
        seen[identity] = number + 1
        if number == len(found):
            found.append([])
        found[number].append(place)
    return found
