"""Texts written from documents."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

WRITE: Final = Prompt(
    "synthesis",
    "write",
    "1",
    "You write a text from documents, for people who will check every sentence of it against them.\n"
    + FENCE_RULE
    + "\n"
    "Each fence holds one section; its first line is the section's citation, such as "
    "[doc:handbook.md § Handbook > Leave].\n"
    "Write in Markdown, beginning with a heading of level 1, in the language of what is asked. Say only what the "
    "sections say. Behind each sentence or list item put the citation of the section that it rests on, copied letter "
    "by letter; where it rests on several, put each. Where sections disagree, say so and cite both. What they do not "
    "say is left out, and where they do not answer what is asked, say that in one sentence.\n"
    "Answer with the text alone.",
)

PROMPTS: Final = (WRITE,)
