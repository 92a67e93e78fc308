"""Words and idioms of the sample corpora: English beside German.

Every table is a block of text with an entry a line, since words are easier to check in columns than in constructor calls.
German has three cases, nom, acc and dat (possession is expressed by "von"), the genders m, f and n, and p for the plural.

The translation of an idiom is not composed from the translations of its words. Each word also occurs in plain sentences with
its literal translation. `readings` finds the possible idioms of a sentence. The grammar keeps these strings out of plain
sentences, so each English sentence has one translation.
"""

import re
from typing import NamedTuple


class Noun(NamedTuple):
    """A noun with its selectional classes (person, thing, ...). Verbs and prepositions choose by them. plural "-": none."""

    singular: str
    plural: str
    gender: str
    german: str
    german_plural: (
        str  # a trailing *: weak declension, in which all forms but the nominative singular are the plural form
    )
    classes: tuple[str, ...]


class Adjective(NamedTuple):
    english: str
    german: str  # predicative form
    stem: str  # endings are added to it
    antonym: str
    classes: tuple[str, ...]


class Determiner(NamedTuple):
    english: str
    tag: str
    relation: str
    number: str  # the numbers of its nouns: s, p or sp
    german: str
    declension: str  # article, der, ein or none: its endings, and so the adjective's


class Pronoun(NamedTuple):
    english: str
    objective: str
    possessive: str
    person: int
    plural: bool
    nom: str
    acc: str
    dat: str
    reflexive: str
    german_possessive: str


class EnglishVerb(NamedTuple):
    base: str
    third: str
    past: str
    participle: str


class GermanVerb(NamedTuple):
    """A verb, with its separable particle apart: abgeben is geben, gibt, gegeben and the particle ab."""

    infinitive: str
    third: str
    participle: str
    auxiliary: str
    particle: str


class Preposition(NamedTuple):
    english: str
    german: str
    case: str
    classes: tuple[str, ...]


class Verb(NamedTuple):
    """A verb in both languages, the classes of its subject and objects, and the German cases of the objects.

    Objects are in English order.
    """

    english: EnglishVerb
    german: GermanVerb
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    cases: tuple[str, ...]
    preposition: Preposition | None


class Adverb(NamedTuple):
    english: str  # annotated brackets: phrasemodels.data.samples.english
    german: str
    tenses: tuple[str, ...]


def rows(table: str) -> list[list[list[str]]]:
    """Return the lines of a table as columns, separated by |, of words."""
    return [[column.split() for column in line.split("|")] for line in table.strip().splitlines()]


def german_verb(words: list[str]) -> GermanVerb:
    """Build a verb from infinitive, third person, participle, auxiliary and, if it has one, particle."""
    infinitive, third, participle, auxiliary, *particle = words
    return GermanVerb(infinitive, third, participle, auxiliary, "".join(particle))


NOUNS = {
    words[0]: Noun._make([*words, tuple(classes)])
    for words, classes in rows("""
man men m mann männer | person
woman women f frau frauen | person
boy boys m junge jungen* | person
girl girls n mädchen mädchen | person
child children n kind kinder | person
teacher teachers m lehrer lehrer | person
doctor doctors m arzt ärzte | person
farmer farmers m bauer bauern* | person
friend friends m freund freunde | person
neighbour neighbours m nachbar nachbarn* | person
king kings m könig könige | person
queen queens f königin königinnen | person
dog dogs m hund hunde | animal
cat cats f katze katzen | animal
horse horses n pferd pferde | animal
bird birds m vogel vögel | animal
rat rats f ratte ratten | animal
apple apples m apfel äpfel | food
egg eggs n ei eier | food
bean beans f bohne bohnen | food
cake - m kuchen - | food mass
cheese - m käse - | food
soup - f suppe - | food
water - n wasser - | drink
milk - f milch - | drink
tea - m tee - | drink
piece pieces n stück stücke | measure
ball balls m ball bälle | thing
book books n buch bücher | thing
hat hats m hut hüte | thing
key keys m schlüssel schlüssel | thing
stone stones m stein steine | thing
rope ropes n seil seile | thing
boot boots m stiefel stiefel | thing
bucket buckets m eimer eimer | thing
sack sacks m sack säcke | thing container
box boxes f kiste kisten | thing container
bag bags f tasche taschen | thing container
letter letters m brief briefe | thing container
door doors f tür türen | container surface
wall walls f wand wände | surface high
hill hills m hügel hügel | place high
bridge bridges f brücke brücken | place high surface
house houses n haus häuser | place inside surface
garden gardens m garten gärten | place inside
town towns f stadt städte | place inside surface
school schools f schule schulen | place inside
forest forests m wald wälder | place inside
road roads f straße straßen | place
leg legs n bein beine | body
arm arms m arm arme | body
hand hands f hand hände | body
toe toes f zehe zehen | body
car cars n auto autos | vehicle
train trains m zug züge | vehicle
bus buses m bus busse | vehicle
boat boats n boot boote | vehicle
song songs n lied lieder | event
game games n spiel spiele | event
ride rides f fahrt fahrten | event
thunder - m donner - | sound
dust - m staub - | sight
cloud clouds f wolke wolken | sight
moon - m mond - | sight
""")
}

ADJECTIVES = {
    words[0]: Adjective._make([*words, tuple(classes)])
    for words, classes in rows("""
big groß groß small | person animal thing place vehicle container
small klein klein big | person animal thing place vehicle container body
old alt alt young | person animal
young jung jung old | person animal
happy glücklich glücklich sad | person animal
sad traurig traurig happy | person animal event
good gut gut bad | food drink event person
bad schlecht schlecht good | food drink event
hot heiß heiß cold | food drink
cold kalt kalt hot | food drink body
dark dunkel dunkl bright | place sight
bright hell hell dark | place sight
red rot rot blue | thing vehicle surface
blue blau blau red | thing vehicle surface
""")
}

DETERMINERS = {
    row[0]: Determiner(*row)
    for (row,) in rows("""
the DT det sp d article
a DT det s ein ein
this DT det s dies der
every DT det s jed der
these DT det p dies der
two CD nummod p zwei none
three CD nummod p drei none
nine CD nummod p neun none
""")
}
BARE = Determiner("", "", "", "p", "", "none")

PRONOUNS = {
    row[0]: Pronoun(row[0], row[1], row[2], int(row[3]), row[4] == "p", *row[5:])
    for (row,) in rows("""
i me my 1 s ich mich mir mich mein
he him his 3 s er ihn ihm sich sein
she her her 3 s sie sie ihr sich ihr
we us our 1 p wir uns uns uns unser
they them their 3 p sie sie ihnen sich ihr
""")
}
WHO = Pronoun("who", "who", "", 3, False, "wer", "wen", "wem", "sich", "")
WHAT = Pronoun("what", "what", "", 3, False, "was", "was", "was", "sich", "")

PREPOSITIONS = {
    words[0]: Preposition(words[0], words[1], words[2], tuple(classes))
    for words, classes in rows("""
in in dat | inside
near bei dat | place
behind hinter dat | surface place
on auf dat | high
with mit dat | person
for für acc | person
""")
}

_UP = Preposition("up", "auf", "acc", ("high",))
_ON = Preposition("on", "auf", "acc", ("thing", "body"))
_OUT = Preposition("out of", "aus", "dat", ("inside",))
_WAIT = Preposition("for", "auf", "acc", ("person", "vehicle"))
_GOVERNED = {"up": _UP, "on": _ON, "out": _OUT, "for": _WAIT}

VERBS = {
    english[0]: Verb(
        EnglishVerb(*english),
        german_verb(german),
        tuple(subjects),
        tuple(objects),
        tuple(word for word in frame if word in ("acc", "dat")),
        next((_GOVERNED[word] for word in frame if word in _GOVERNED), None),
    )
    for english, german, subjects, objects, frame in rows("""
kick kicks kicked kicked | treten tritt getreten haben | person animal | thing animal | acc
bite bites bit bitten | beißen beißt gebissen haben | animal | person animal food | acc
spill spills spilled spilled | verschütten verschüttet verschüttet haben | person | drink food | acc
hit hits hit hit | schlagen schlägt geschlagen haben | person | thing person | acc
pull pulls pulled pulled | ziehen zieht gezogen haben | person animal | thing vehicle | acc
give gives gave given | geben gibt gegeben haben | person | thing food | dat acc
keep keeps kept kept | behalten behält behalten haben | person | thing animal | acc
take takes took taken | nehmen nimmt genommen haben | person | thing food drink | acc
steal steals stole stolen | stehlen stiehlt gestohlen haben | person animal | thing food | acc
drive drives drove driven | fahren fährt gefahren haben | person | vehicle | acc
smell smells smelled smelled | riechen riecht gerochen haben | person animal | food drink animal | acc
paint paints painted painted | streichen streicht gestrichen haben | person | surface thing | acc
miss misses missed missed | verpassen verpasst verpasst haben | person | vehicle event | acc
see sees saw seen | sehen sieht gesehen haben | person animal | person animal thing body sight place | acc
hear hears heard heard | hören hört gehört haben | person animal | person animal event sound | acc
love loves loved loved | lieben liebt geliebt haben | person | person animal event food place | acc
eat eats ate eaten | essen isst gegessen haben | person animal | food measure | acc
drink drinks drank drunk | trinken trinkt getrunken haben | person animal | drink | acc
buy buys bought bought | kaufen kauft gekauft haben | person | thing food measure vehicle | acc
find finds found found | finden findet gefunden haben | person animal | thing person food | acc
carry carries carried carried | tragen trägt getragen haben | person | thing animal | acc
open opens opened opened | machen macht gemacht haben auf | person | container | acc
close closes closed closed | machen macht gemacht haben zu | person | container | acc
call calls called called | rufen ruft gerufen haben an | person | person | acc
visit visits visited visited | besuchen besucht besucht haben | person | person place | acc
help helps helped helped | helfen hilft geholfen haben | person | person animal | dat
step steps stepped stepped | treten tritt getreten sein | person animal | | on
climb climbs climbed climbed | klettern klettert geklettert sein | person animal | | up
run runs ran run | rennen rennt gerannt sein | person animal | | out
wait waits waited waited | warten wartet gewartet haben | person | | for
sleep sleeps slept slept | schlafen schläft geschlafen haben | person animal | |
laugh laughs laughed laughed | lachen lacht gelacht haben | person | |
sing sings sang sung | singen singt gesungen haben | person animal | |
say says said said | sagen sagt gesagt haben | person | |
think thinks thought thought | denken denkt gedacht haben | person | |
hope hopes hoped hoped | hoffen hofft gehofft haben | person | |
be is was been | sein ist gewesen sein | person animal | |
""")
}
CLAUSAL = ("say", "think", "hope")

ADVERBS = {
    words[1]: Adverb(f"({words[0]} ({words[2]} {words[1]}))", german[0], tuple(tenses))
    for words, german, tenses in rows("""
NP/obl:tmod today NN | heute | present future can must
NP/obl:tmod tomorrow NN | morgen | future
NP/obl:tmod yesterday NN | gestern | past
ADVP/advmod now RB | jetzt | present can must
ADVP/advmod often RB | oft | present past perfect
ADVP/advmod once RB | einmal | past
""")
}


class Idiom(NamedTuple):
    """A verb idiom.

    english: its complement in annotated brackets, with {iobj}, {obj} or {poss} for X. case: the German case of X, or
    "refl". before, after: the German words before and after "nicht".
    """

    name: str
    polarity: int
    verb: Verb
    english: str
    case: str
    before: str
    after: str


_ANY = ("present", "past", "future")
ADVERB_IDIOMS = {
    "once in a blue moon": Adverb(
        "(ADVP/advmod (RB once) (PP/obl (IN/case in) (NP (DT/det a) (JJ/amod blue) (NN moon))))",
        "alle jubeljahre",
        _ANY,
    ),
    "out of the blue": Adverb(
        "(PP/obl (IN/case out) (PP (IN/case of) (NP (DT/det the) (NN blue))))", "aus heiterem himmel", _ANY
    ),
}
NOUN_IDIOMS = {
    "big cheese": (Adjective("big", "hoch", "hoh", "", ()), Noun("cheese", "-", "n", "tier", "-", ("person",)))
}


def _idiom(columns: list[list[str]]) -> Idiom:
    (words, polarity, german, english, case, before, after) = (" ".join(column) for column in columns)
    subjects = ("event",) if words == "be a piece of cake" else ("person",)
    verb = Verb(VERBS[words.split()[0]].english, german_verb(german.split()), subjects, (), (), None)
    return Idiom(words, int(polarity), verb, english, case, before, after)


VERB_IDIOMS = {
    idiom.name: idiom
    for idiom in map(
        _idiom,
        rows("""
kick the bucket | -1 | geben gibt gegeben haben ab | (NP/obj (DT/det the) (NN bucket)) | | den löffel |
bite the dust | -1 | beißen beißt gebissen haben | (NP/obj (DT/det the) (NN dust)) | | | ins gras
spill the beans | -1 | plaudern plaudert geplaudert haben | (NP/obj (DT/det the) (NNS beans)) | | | aus der schule
hit the sack | 0 | hauen haut gehauen haben | (NP/obj (DT/det the) (NN sack)) | refl | | aufs ohr
miss the boat | -1 | schauen schaut geschaut haben | (NP/obj (DT/det the) (NN boat)) | | | in die röhre
smell a rat | -1 | riechen riecht gerochen haben | (NP/obj (DT/det a) (NN rat)) | | den braten |
paint the town red | 1 | hauen haut gehauen haben | (NP/obj (DT/det the) (NN town)) (ADJP/xcomp (JJ red)) | | | auf die pauke
pull X 's leg | -1 | nehmen nimmt genommen haben | (NP/obj {poss} (NN leg)) | acc | | auf den arm
steal X 's thunder | -1 | nehmen nimmt genommen haben | (NP/obj {poss} (NN thunder)) | dat | | den wind aus den segeln
step on X 's toes | -1 | treten tritt getreten haben | (PP/obl (IN/case on) (NP {poss} (NNS toes))) | dat | | auf den schlips
give X the boot | -1 | setzen setzt gesetzt haben | {iobj} (NP/obj (DT/det the) (NN boot)) | acc | | vor die tür
give X a hand | 1 | greifen greift gegriffen haben | {iobj} (NP/obj (DT/det a) (NN hand)) | dat | | unter die arme
keep X in the dark | -1 | führen führt geführt haben | {obj} (PP/obl (IN/case in) (NP (DT/det the) (NN dark))) | acc | | hinters licht
take X for a ride | -1 | ziehen zieht gezogen haben | {obj} (PP/obl (IN/case for) (NP (DT/det a) (NN ride))) | acc | | über den tisch
drive X up the wall | -1 | bringen bringt gebracht haben | {obj} (PP/obl (IN/case up) (NP (DT/det the) (NN wall))) | acc | | auf die palme
be in hot water | -1 | sitzen sitzt gesessen haben | (PP (IN/case in) (NP (JJ/amod hot) (NN water))) | | | in der tinte
be a piece of cake | 1 | sein ist gewesen sein | (NP (NP (DT/det a) (NN piece)) (PP/nmod (IN/case of) (NP (NN cake)))) | | | kinderleicht
"""),
    )
}
IDIOMS = (*VERB_IDIOMS, *ADVERB_IDIOMS, *NOUN_IDIOMS)


_SLOT = r"(?:\S+ ){1,6}?"


def _reading(name: str, idiom: Idiom | None) -> str:
    """Return a regular expression of the English strings of an idiom: any tense, up to six tokens for X."""
    if idiom is None or idiom.verb.english.base == "be":
        return re.escape(name.removeprefix("be "))
    english = idiom.verb.english
    forms = "|".join({english.base: 0, english.third: 0, english.past: 0, english.participle: 0})
    words = " ".join(re.findall(r"\{\w+\}|(?<= )\w+(?=\))", idiom.english))
    return f"(?:{forms}) " + re.sub(r"\{\w+\} ", lambda _: _SLOT, words)


_READINGS = {name: re.compile(rf"\b{_reading(name, VERB_IDIOMS.get(name))}\b") for name in IDIOMS}
_ANY_READING = re.compile("|".join(pattern.pattern for pattern in _READINGS.values()))


def readings(english: str) -> list[str]:
    """Return the names of the possible idioms of an English sentence (tokens separated by one space).

    X may be any words, so there may be too many readings, never too few.
    """
    if not _ANY_READING.search(english):
        return []
    return [name for name, pattern in _READINGS.items() if pattern.search(english)]
