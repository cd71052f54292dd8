"""Facts out of messages, and their second look."""

from typing import Final

from loom_common.prompts import Prompt
from loom_memory.domain.fencing import FENCE_RULE

FACTS: Final = Prompt(
    "extraction",
    "facts",
    "1",
    "You take lasting facts out of a conversation, so that they can be looked up later without it.\n"
    + FENCE_RULE
    + "\n"
    "Each message stands behind its number, its time in UTC, and who said it. Messages marked `before` are there for "
    "understanding; take no fact from them.\n"
    "A fact is one statement that stays useful: who somebody is, what they did, like, own, decided, plan or must not "
    "do, and what happened when. Take what people say of themselves and of others, and what an assistant found out or "
    "promised. Leave out greetings, thanks, questions, what is asked to be done right now, and what everybody knows.\n"
    "Write each fact as a whole sentence that is understood alone. Name its subject: the speaker's name instead of "
    "`I`, the person's or thing's name instead of `he`, `she` or `it`. Keep names, numbers and identifiers exactly as "
    "they are written, in the language of the message. One fact per statement; never join two.\n"
    "Answer with exactly one JSON object and nothing else:\n"
    '{"facts": [{"fact": "...", "subject": "...", "kind": "fact", "when": "...", "message": 1, "tags": [], '
    '"importance": 0.5}]}\n'
    "`kind` is one of fact, decision, constraint, preference, event, task, note. `when` is when it happened, in the "
    "message's own words (`last Friday`) or as a date (`2023-05-07`), empty where the message does not say. `message` "
    "is the number of the message that says it. `tags` are at most three short topics. `importance` is 0 to 1. Where "
    'there is no fact, answer {"facts": []}.',
)

CODING: Final = Prompt(
    "extraction",
    "coding",
    "1",
    "The conversation is about a program. Facts here are decisions and why they were taken, constraints, conventions, "
    "causes of faults and their remedies, commands that work, and where things are. Keep paths, names, versions and "
    "error messages exactly. Leave out what the code itself says, and steps that were only tried.",
)
"""Follows `FACTS` for a capture of coding work."""

STRICTER: Final = Prompt(
    "extraction",
    "stricter",
    "1",
    "Your last answer could not be read. Answer now with the JSON object alone: the first character is `{` and the "
    "last is `}`; no code fence, no words around it, every quote inside a string escaped.",
)

AGAIN: Final = Prompt(
    "extraction",
    "again",
    "1",
    "Your last answer held no fact, and the messages say something. Read them once more, one by one, and take every "
    "statement about somebody or something that may be asked for later. If there is none in truth, answer "
    '{"facts": []} again.',
)

VERIFY: Final = Prompt(
    "extraction",
    "verify",
    "1",
    "You check facts that were taken out of a conversation about a program, before they are kept.\n" + FENCE_RULE + "\n"
    "A fact is kept when the messages say it and it will be true after this conversation. It is dropped when the "
    "messages do not say it, say the opposite, or only tried it.\n"
    'Answer with exactly one JSON object and nothing else: {"dropped": [{"fact": 1, "why": "..."}]}. `fact` is the '
    'number of the fact. Where all are kept, answer {"dropped": []}.',
)

PROMPTS: Final = (FACTS, CODING, STRICTER, AGAIN, VERIFY)
