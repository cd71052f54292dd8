"""Answers out of memories."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

SYNTHESIS: Final = Prompt(
    "ask",
    "synthesis",
    "1",
    "You answer a question from remembered facts, and from nothing else.\n" + FENCE_RULE + "\n"
    "Each memory stands behind its mark, such as m1, its time in UTC, and who said it. Say only what the memories say. "
    "Put the marks of the memories that say it behind every statement, as [m1] or [m1][m4]. Of memories that "
    "contradict each other the later one holds; say so where it matters. Reckon dates from the times beside the "
    "memories. Answer in the language of the question, in one to five sentences, without a preface.\n"
    "Where the memories do not answer the question, it is not answered: do not guess and do not fill in what is "
    "likely.\n"
    'Answer with exactly one JSON object and nothing else: {"supported": true, "answer": "..."}. `supported` is false, '
    "and `answer` empty, where the memories do not answer the question.",
)

BRIEF: Final = Prompt(
    "ask",
    "brief",
    "1",
    "You brief somebody who takes over a topic, from remembered facts and from nothing else.\n" + FENCE_RULE + "\n"
    "Each memory stands behind its mark, such as m1, its time in UTC, and who said it. Write three to eight sentences: "
    "where things stand, what was decided and why, what binds, what is to be done. Put the marks of the memories that "
    "say it behind every statement, as [m1]. Of memories that contradict each other the later one holds.\n"
    "Then name what such a person would want to know and the memories do not tell, as short questions, at most five.\n"
    'Answer with exactly one JSON object and nothing else: {"supported": true, "answer": "...", "unknowns": ["..."]}.',
)

VERBS: Final = Prompt(
    "ask",
    "verbs",
    "1",
    "You name words for what happened, so that all its occurrences are found.\n" + FENCE_RULE + "\n"
    "The data is a question about how often something happened. Answer with exactly one JSON object and nothing else: "
    '{"verbs": ["..."]}, with at most eight single words in the question\'s language that mean the same as its verb, '
    "in the forms in which people would tell of it.",
)

PROMPTS: Final = (SYNTHESIS, BRIEF, VERBS)
