"""What kind of answer a question asks for, read from its words alone."""

from enum import StrEnum

import regex


class Intent(StrEnum):
    """What a question asks for beside its topic."""

    LOOKUP = "lookup"
    COUNT = "count"
    LIST = "list"
    LATEST = "latest"
    DERIVED = "derived"


_COUNT = regex.compile(
    r"\b(?:how many|how often|number of|count of|(?:total|overall) (?:number|count)|wie ?viele|wie oft|anzahl"
    r"|combien de|cu[áa]nt[oa]s|quant[ie] volte|quant[oa]s|hoeveel)\b"
    r"|сколько|多少[个個次本人]?|几[个次]|幾[個次]|いくつ|何[回個人冊]|몇",
    regex.IGNORECASE,
)
# A time that is worked out from others, or an age: the rows that it follows from are wanted, not a row that says it.
_DERIVED = regex.compile(
    r"\b(?:how long (?:ago|since|has|have|had|did|was|were|between)|how old|how many (?:days|weeks|months|years)"
    r"|how much (?:older|younger|longer|more|less)|wie lange|wie alt|depuis combien|quel [âa]ge"
    r"|cu[áa]nto tiempo|qu[ée] edad)\b|多久|多大|几岁|何歳|どのくらい|얼마나",
    regex.IGNORECASE,
)
_LIST = regex.compile(
    r"^\s*(?:list|name|enumerate|show)\b|\b(?:list (?:of|all)|all (?:the|of|my|his|her|their)|every|each of"
    r"|(?:what|which) (?:are|were) (?:all|the)|welche|nenne|alle|quels|quelles|lister?|tous les|toutes les"
    r"|cu[áa]les|todos los|todas las)\b|所有|列出|哪些|すべて|全部|모든",
    regex.IGNORECASE,
)
_LATEST = regex.compile(
    r"\b(?:latest|newest|most recent(?:ly)?|current(?:ly)?|right now|these days|nowadays|at the moment|last time"
    r"|aktuell\w*|derzeit|neueste\w*|zuletzt|actuel\w*|maintenant|derni[èe]re fois|actual(?:mente)?"
    r"|m[áa]s reciente|[úu]ltima vez)\b|最新|最近|目前|现在|現在|今の|最後に|최근|현재",
    regex.IGNORECASE,
)


def intent_of(query: str) -> Intent:
    """Returns what a question asks for. Never raises; a question that says nothing of it looks something up."""
    for pattern, intent in _ORDER:
        if pattern.search(query):
            return intent
    return Intent.LOOKUP


# "How many years since" is worked out, not counted; "how many of all" is counted, not listed.
_ORDER = (
    (_DERIVED, Intent.DERIVED),
    (_COUNT, Intent.COUNT),
    (_LATEST, Intent.LATEST),
    (_LIST, Intent.LIST),
)
