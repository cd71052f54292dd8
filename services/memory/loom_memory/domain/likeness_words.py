"""Words that decide between two texts of nearly the same words; `domain.likeness` says how.

Source: chosen, and measured with `bench/gates.py`. A word that is missing here costs recall, never a wrong verdict of
`duplicate`: what is not listed counts as content, and differing content is no duplicate.
"""

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ARTICLES: Final = _words(
    """a an the
    der die das den dem des ein eine einen einem einer eines
    le la les l un une
    el los las una unos unas lo
    il i gli uno
    o os as um uma
    de het een
    en ett et"""
)
"""Articles, which say nothing of their own here."""

LIGHT: Final = ARTICLES | _words(
    """is are am be been being 's s at in on of it this that and get gets got does do did has have had
    ist sind bin sein wird werden im am an auf zu
    est sont du au aux en dans sur
    es son está están del al
    è sono nel nella
    é são está no na
    to by called named holds held happens happen takes place there exactly please"""
)
"""Words that paraphrases come and go with. No pronoun, no tense, no direction and no bound is among them."""

NEGATIONS: Final = _words(
    """not no never none nobody nothing neither nor without cannot cant dont doesnt didnt isnt arent wasnt werent wont
    couldnt shouldnt wouldnt havent hasnt hadnt
    nicht kein keine keinen keinem keiner nie niemals nichts ohne
    ne pas jamais aucun aucune sans rien
    nunca jamás ningún ninguna nada sin
    non mai nessuno senza
    não nenhum nenhuma sem
    niet geen nooit zonder
    inte ingen inget aldrig ikke
    nie bez
    не нет никогда без ни
    değil yok asla"""
)
"""Words that turn what is said round. The Spanish and Italian `no` is the English one."""

NEGATING_PARTS: Final = (
    "不",
    "没",
    "沒",
    "未",
    "无",
    "無",
    "別",
    "别",
    "ない",
    "ません",
    "ぬ",
    "않",
    "없",
    "못",
    "안 ",
)
"""The same of scripts that put no space round them."""

_PAIRS: Final = """love/hate loves/hates like/dislike likes/dislikes enable/disable enabled/disabled on/off open/closed
    opened/closed always/never allow/forbid allowed/forbidden accept/reject accepts/rejects accepted/rejected true/false
    yes/no start/stop starts/stops public/private optional/required mandatory/optional active/inactive before/after
    above/below more/less minimum/maximum least/most first/last increase/decrease with/without up/down
    vegetarian/carnivore single/married alive/dead success/failure works/broken pass/fail passes/fails
    liebt/hasst mag/hasst aktiviert/deaktiviert offen/geschlossen immer/nie erlaubt/verboten wahr/falsch vor/nach
    aime/déteste activé/désactivé ouvert/fermé toujours/jamais autorisé/interdit avant/après
    ama/odia amo/odio activado/desactivado abierto/cerrado siempre/nunca permitido/prohibido antes/después
    attivato/disattivato aperto/chiuso sempre/mai
    любит/ненавидит включен/выключен открыт/закрыт всегда/никогда"""
ANTONYMS: Final = frozenset(frozenset(pair.split("/")) for pair in _PAIRS.split())
"""Pairs of which only one can hold of the same thing."""

SHARED_BY_MANY: Final = _words(
    """likes like liked loves love loved enjoys enjoy enjoyed visited visits visit met meets read reads watched watches
    saw sees ate eats bought buys buy owns own owned knows know speaks speak spoke learns learned learning studied
    studies tried wrote told said asked found fixed added deployed merged discussed went travelled traveled attended
    completed finished sold sent received mentioned visited collects supports includes contains played
    mag liebt besuchte kaufte spricht kennt lernt las sah traf besitzt
    aime parle connaît visité acheté lu vu rencontré possède apprend
    gusta gustan encanta habla conoce visitó compró leyó vio aprende
    ama parla conosce visitato comprato letto visto
    gosta fala conhece visitou comprou leu
    любит говорит знает купил посетил"""
)
"""Predicates that hold of many things at once: who likes tea may like coffee too."""

COUNTED: Final = _words(
    "has have had need needs owes hat haben braucht brauche a ont tiene tienen ha hanno tem têm heeft"
)
"""Predicates that hold of many things, and of one number."""

SHARED_PARTS: Final = (
    "喜欢",
    "喜歡",
    "会说",
    "會說",
    "去过",
    "去過",
    "买了",
    "買了",
    "読んだ",
    "好き",
    "話せ",
    "買った",
    "좋아",
)
"""Predicates that hold of many things, of scripts without spaces."""

PREDICATES: Final = _words(
    """is are was were has have had costs cost lives live works work prefers prefer wants want needs need uses use
    holds hold takes take starts start begins begin ends end closes close opens open runs run called named means must
    should may can will rotates keeps keep stays expires belongs reports moved plays pays weighs owes earns sleeps
    ist sind war hat haben kostet wohnt lebt arbeitet bevorzugt braucht nutzt beginnt endet heißt läuft muss soll
    est sont était a coûte habite vit travaille préfère utilise commence finit dure appelle doit
    es son era tiene cuesta vive trabaja prefiere usa empieza termina llama está debe
    è sono costa vive lavora preferisce usa comincia finisce chiama deve
    é custa mora vive trabalha prefere usa começa termina chama deve
    kost woont werkt gebruikt begint eindigt heet moet
    стоит живёт живет работает предпочитает использует начинается"""
)
"""Words behind which a sentence says something of what it spoke of before."""

NUMBER_WORDS: Final = _words(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half double twice
    once zwei drei vier fünf sechs sieben acht neun zehn zwölf deux trois quatre cinq six sept huit neuf dix dos tres
    cuatro cinco seis siete ocho nueve diez due tre quattro cinque sei sette otto nove dieci"""
)
"""Numbers that are written as words; what is missing here is a word like any other."""

_DIGITS: Final = """
0/zero/null/zéro/cero 1/one/eins/uno/first 2/two/zwei/deux/dos/due/second/twice 3/three/drei/trois/tres/tre/third
4/four/vier/quatre/cuatro/quattro/fourth 5/five/fünf/cinq/cinco/cinque/fifth 6/six/sechs/seis/sei/sixth
7/seven/sieben/sept/siete/sette/seventh 8/eight/acht/huit/ocho/otto/eighth 9/nine/neun/neuf/nueve/nove/ninth
10/ten/zehn/dix/diez/dieci/tenth 11/eleven/elf/onze 12/twelve/zwölf/douze/doce/dodici"""
DIGITS: Final = {word: names.split("/")[0] for names in _DIGITS.split() for word in names.split("/")[1:]}
"""Numbers written as words, and their digits."""

CONTRACTIONS: Final = (("can't", "cannot"), ("won't", "will not"), ("n't", " not"), ("i'm", "i am"), ("'re ", " are "))
"""What one word says that others write as two."""

COMPARING: Final = _words("over than before instead rather lieber als plutôt que antes")
"""Words round which two things change places without another thing being spoken of."""

DENSE_PREDICATES: Final = ("在", "是", "为", "為", "叫", "用", "は", "が", "に", "で", "を")
"""Particles and verbs behind which a sentence without spaces says something of what it spoke of before."""

TOPIC_ENDINGS: Final = ("은", "는", "이", "가")
"""Endings that make a Korean word what a sentence speaks of."""
