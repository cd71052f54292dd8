"""What the legs of a search found, and what is known of each memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loom_memory.domain.memory import Identity, Sketch
from loom_memory.domain.ranking import Candidate, Found
from loom_memory.store.embeddings import VectorHit
from loom_memory.store.legs import NamedHit
from loom_memory.store.memories import LexicalHit, Neighbour


@dataclass(slots=True)
class Evidence:
    """What is known of one memory.

    Attributes:
        is_near: Whether the vector leg found it as it is now.
        entity: How surely it is about a thing that the question names, 0 to 1.
        is_timely: Whether it was found by a time that the question names and nothing else.
    """

    sketch: Sketch
    cosine: float | None = None
    lexical: LexicalHit | None = None
    position: int | None = None
    is_near: bool = False
    entity: float = 0.0
    has_key: bool = False
    has_tag: bool = False
    is_timely: bool = False

    @property
    def is_found(self) -> bool:
        """Whether a leg found it as it is now."""
        return self.is_near or self.lexical is not None or self.is_named

    @property
    def is_named(self) -> bool:
        """Whether the question names it: by its key or a tag, a thing that it is about, or its time alone."""
        return self.has_key or self.has_tag or self.is_timely or self.entity > 0


class Legs:
    """What the legs found, of whatever version."""

    def __init__(
        self,
        lexical: Sequence[LexicalHit],
        near: Sequence[VectorHit],
        named: Sequence[NamedHit] = (),
        entities: Mapping[Identity, float] | None = None,
        timely: Sequence[Identity] = (),
    ) -> None:
        self._named = {hit.identity: hit for hit in named}
        self._entities = entities or {}
        self._timely = frozenset(timely)
        self._ordered_timely = list(timely)
        self._lexical = {hit.identity: hit for hit in lexical}
        self._near: dict[Identity, list[VectorHit]] = {}
        self._nearest: dict[Identity, float] = {}
        for chunk in near:
            self._near.setdefault(chunk.identity, []).append(chunk)
            self._nearest[chunk.identity] = max(chunk.cosine, self._nearest.get(chunk.identity, -1.0))

    def identities(self, most_near: int) -> list[Identity]:
        """Returns all that the legs found, of the vector leg the nearest `most_near`."""
        found = [*self._named, *self._lexical, *list(self._near)[:most_near], *self._entities, *self._ordered_timely]
        return list(dict.fromkeys(found))

    def counts(self) -> dict[str, int]:
        """Returns how many memories each leg found, of whatever version."""
        counts = {
            "vector": len(self._near),
            "lexical": len(self._lexical),
            "exact": len(self._named),
            "entity": len(self._entities),
            "time": len(self._timely),
        }
        return {name: count for name, count in counts.items() if count}

    def found(self) -> list[Found]:
        """Returns what the seeds are chosen by."""
        return [
            Found(
                key=identity,
                cosine=self._nearest.get(identity),
                share=self._lexical[identity].share if identity in self._lexical else 0.0,
                has_session=bool(identity.session_id),
            )
            for identity in dict.fromkeys([*self._lexical, *self._near])
        ]

    def without_cosine(self, around: Sequence[Neighbour]) -> list[Identity]:
        """Returns those of the other legs and of `around` whose version the vector leg did not find."""
        near = {(hit.identity, hit.version) for hits in self._near.values() for hit in hits}
        versions = [(hit.identity, hit.version) for hit in self._lexical.values()]
        versions += [(neighbour.identity, neighbour.version) for neighbour in around]
        unknown = [version[0] for version in versions if version not in near]
        # Of these only the identity is known: their versions are seen when their rows are.
        unknown += [*self._named, *self._entities, *self._ordered_timely]
        return list(dict.fromkeys(unknown))

    def evidence(self, sketch: Sketch, settled: int) -> Evidence:
        """Returns what the legs know of a row as it is now; hits of its other versions do not count."""
        known = Evidence(sketch)
        lexical = self._lexical.get(sketch.identity)
        if lexical is not None and is_of(lexical.version, sketch, settled):
            known.lexical = lexical
        cosines = [hit.cosine for hit in self._near.get(sketch.identity, ()) if is_of(hit.version, sketch, settled)]
        known.cosine = max(cosines, default=None)
        known.is_near = known.cosine is not None
        known.entity = self._entities.get(sketch.identity, 0.0)
        known.is_timely = sketch.identity in self._timely
        if (named := self._named.get(sketch.identity)) is not None:
            known.has_key, known.has_tag = named.has_key, named.has_tag
        return known


def is_of(version: int, sketch: Sketch, settled: int) -> bool:
    """Says whether a leg's finding counts for the row as it is now: the same version, or one replaced meanwhile."""
    return version == sketch.version or version < sketch.version > settled


def candidate(known: Evidence) -> Candidate:
    """Returns what ranking needs of a memory."""
    sketch, lexical = known.sketch, known.lexical
    identity = sketch.identity
    return Candidate(
        key=identity,
        cosine=known.cosine,
        bm25=lexical.bm25 if lexical else 0.0,
        share=lexical.share if lexical else 0.0,
        exact=lexical is not None and lexical.exact,
        speaker=sketch.speaker,
        session=(identity.user_id, identity.session_id) if identity.session_id else (),
        position=known.position,
        at=sketch.at,
        chars=sketch.chars,
        text=sketch.text,
    )
