"""What should be put right, in fixed words."""

from loom_memory.guides.domain.findings import FindingSubject, Found, Kind, findings_of
from loom_memory.guides.domain.health import Health, complaints


def test_findings_are_added_over_agents_and_the_most_pressing_come_first() -> None:
    found = [
        Found(kind=Kind.STALE_FACTS, agent="a", count=2, subjects=(FindingSubject(key="z"), FindingSubject(key="b"))),
        Found(kind=Kind.STALE_FACTS, agent="b", count=5, subjects=tuple(FindingSubject(key=f"k{n}") for n in range(5))),
        Found(kind=Kind.UNRESOLVED_CONFLICTS, agent="b", count=1, subjects=(FindingSubject(key="c"),)),
        Found(kind=Kind.DUPLICATES, agent="b", count=0),
    ]
    conflicts, stale = findings_of(found)
    assert (conflicts.kind, conflicts.count, conflicts.severity) == (Kind.UNRESOLVED_CONFLICTS, 1, "warning")
    assert (stale.count, [subject.key for subject, _ in stale.subjects]) == (7, ["b", "k0", "k1", "k2", "k3"])
    assert stale.message.startswith("7 facts")
    (of_a,) = findings_of(found, "a")
    assert (of_a.count, of_a.subjects[0]) == (2, (FindingSubject(key="b"), "a"))


def test_every_kind_has_its_words() -> None:
    for kind in Kind:
        (finding,) = findings_of([Found(kind=kind, agent="", count=3)])
        assert "3" in finding.message
        assert finding.advice.endswith(".")


def test_health_has_nothing_to_say_where_all_is_well() -> None:
    assert not complaints(Health(memories=1000, ended=400, queued=10))
    said = complaints(Health(memories=100, ended=60, queued=500, open_conflicts=2, missing_vectors=4))
    assert len(said) == 4
