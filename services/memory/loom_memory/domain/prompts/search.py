"""What helpers of a search ask a model. Every text of a user or a memory follows as data inside a fence."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

HYDE: Final = Prompt(
    "search",
    "hyde",
    "1",
    "You help to search a store of short notes about people, projects and decisions. Write the note that would answer "
    "the question, as if it were stored: one or two plain sentences in the language of the question, with no preamble. "
    "Where you do not know a detail, write what such a note would usually say; never write that you do not know.\n"
    + FENCE_RULE,
)
"""The question follows in a fence; the answer is the note."""

REWRITE: Final = Prompt(
    "search",
    "rewrite",
    "1",
    "You help to search a store of short notes. Put the question in other words that such notes may use: name what it "
    "is about by its usual words, drop what only makes it polite, keep every name, number and date as it is written. "
    "Answer with exactly one JSON object and nothing else: "
    '{"query": "the question in other words"}\n' + FENCE_RULE,
)
"""The question follows in a fence."""

JUDGE: Final = Prompt(
    "search",
    "judge",
    "1",
    "You judge whether notes that a search found answer a question. Answer with exactly one JSON object and nothing "
    'else: {"answered": true, "query": ""}. `answered` says whether the notes hold what the question asks for. Where '
    "they do not, `query` is another search that may find it, in a few words, and empty where none would.\n"
    + FENCE_RULE,
)
"""The question and the notes follow, each in a fence."""

TRIPLES: Final = Prompt(
    "search",
    "triples",
    "1",
    "You read what a question is about. Name the people, places and things in it, and the relations between them that "
    "it asks for. Answer with exactly one JSON object and nothing else: "
    '{"names": ["Ada"], "triples": [["Ada", "works at", ""]]}. Write names as the question writes them; what is asked '
    "for is an empty string. At most 8 names and 8 triples.\n" + FENCE_RULE,
)
"""The question follows in a fence."""

SYNONYMS: Final = Prompt(
    "search",
    "synonyms",
    "1",
    "You help to find every note that counts for a question. Say whether it asks how many times or how many things, "
    "and with which other verbs and nouns notes may tell the same. Answer with one JSON object and nothing else: "
    '{"counts": true, "words": ["bought", "purchased"]}. At most 6 words, in the language of the question.\n'
    + FENCE_RULE,
)
"""The question follows in a fence."""

QUALITY: Final = Prompt(
    "search",
    "quality",
    "1",
    "You judge the hits of a search. For each note, by its number, say whether it helps to answer the question, and "
    "whether all of them answer it together. Answer with exactly one JSON object and nothing else: "
    '{"relevant": [1, 3], "answered": true}\n' + FENCE_RULE,
)
"""The question and the numbered notes follow, each in a fence."""

PROMPTS: Final = (HYDE, REWRITE, JUDGE, TRIPLES, SYNONYMS, QUALITY)
