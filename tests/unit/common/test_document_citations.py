from hypothesis import given
from hypothesis import strategies as st

from loom_common.document_citations import DocumentCitation, document_citations, kept_citations

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).map(str.strip).filter(bool)


@given(TEXT, st.one_of(st.just(""), TEXT))
def test_every_citation_comes_back_as_it_was(source_uri: str, section: str) -> None:
    citation = DocumentCitation(source_uri, section)
    assert document_citations(f"Before {citation}, and {citation}.") == [citation, citation]


def test_only_the_citations_to_keep_stay() -> None:
    kept, gone = DocumentCitation("a.md", "A > B"), DocumentCitation("b.md")
    answer = f"One {kept}. Two {gone}. Three {gone} {kept}"
    assert kept_citations(answer, lambda citation: citation == kept) == f"One {kept}. Two. Three {kept}"
    assert document_citations("[doc:] [doc:a § ] [memory:a@v1] [doc:x]") == [DocumentCitation("x")]
