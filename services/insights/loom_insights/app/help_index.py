"""The index over the sections of the documentation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import bm25s
import numpy as np

from loom_insights.domain.documentation import Audience, Page, Section
from loom_insights.domain.snippets import snippet
from loom_insights.domain.terms import Analyzer

OPERATOR_WEIGHT: Final = 0.75
"""What the score of a section for operators counts: most who ask use Loom rather than run it."""

_TITLE_TIMES: Final = 2
"""How often the words of a section's own title count. Source: chosen."""

_K1: Final = 1.2
_B: Final = 0.75


@dataclass(frozen=True, slots=True)
class HelpHit:
    """One section that was found."""

    page: Page
    section: Section
    snippet: str
    score: float


class HelpIndex:
    """Scores sections with BM25. Built once; read by many threads."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self.pages = {page.path: page for page in pages}
        self.sections = [(page, section) for page in pages for section in page.sections]
        analyzer = Analyzer()
        corpus = [_terms(analyzer, section) for _, section in self.sections]
        self._scores = bm25s.BM25(k1=_K1, b=_B, method="lucene") if any(corpus) else None
        if self._scores is not None:
            self._scores.index(corpus, show_progress=False)
        self._weights = np.array(
            [OPERATOR_WEIGHT if page.audience == "operator" else 1.0 for page, _ in self.sections], np.float32
        )

    def search(self, query: str, top_k: int, audience: Audience | None) -> list[HelpHit]:
        """Returns the sections that answer best, best first, equal ones by page and place; none without a term."""
        analyzer = Analyzer()
        wanted = analyzer.of_query(query)
        if not wanted or self._scores is None:
            return []
        scores = self._scores.get_scores(wanted) * self._weights
        hits: list[HelpHit] = []
        for place in np.argsort(-scores, kind="stable"):
            page, section = self.sections[place]
            if len(hits) == top_k or scores[place] <= 0:
                break
            if audience is None or page.audience == audience:
                shown = snippet(section.text, wanted, analyzer.of_text)
                hits.append(HelpHit(page, section, shown, round(float(scores[place]), 4)))
        return hits


def _terms(analyzer: Analyzer, section: Section) -> list[str]:
    above = analyzer.of_text(" ".join(section.breadcrumb[:-1]))
    return above + _TITLE_TIMES * analyzer.of_text(section.title) + analyzer.of_text(section.text)
