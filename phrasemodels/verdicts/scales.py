"""The scale of a metric: by its name, and then by all of its numbers at once, printed and ours."""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

SCALES = ("percent", "share", "positive", "count")
OUT_OF_REACH = 1e15  # a larger value is of a run that diverged
SMALL = 10.0  # percent: printed numbers below it may be beside percentages of ours that are at most 1
NEAR = 10.0  # points: a stated percentage that is so near to a printed one if it is a share may be one
TOLERANCE = 1e-6
WORD = re.compile(r"[^\W_]+|[@+]")
TIMES = frozenset("ms s sec seconds h hours min minutes".split())
LESS = TIMES | frozenset("b kb mb gb mib gib bytes".split())
UNITS = LESS | frozenset("k m g hrs days".split())
QUALIFIERS = UNITS | frozenset(
    "test dev val valid validation eval train macro micro weighted avg average mean overall total balanced score scores rate points "
    "percent pct in on of n".split()
)
CHANGING = frozenset(
    "relative delta δ gain drop gap difference diff change improvement reduction std sd stdev stderr variance deviation".split()
)


# Names of parts of data that are no test set, and those that are in a text only beside what they are of.
SPLIT = r"(?:mini)?(?:dev(?:el)?|val(?:id(?:ation)?)?)(?:set|split|data)?s?\d*|cv"
PART = r"(?:train(?:ing)?|development|tuning)(?:set|split)?\d*"

# What text beside a table may say of its numbers, so that they are no scores of the test set, or no means.
_STORY = re.compile(r"\b(yield|achiev|bring|give|lead|obtain|provid|outperform|improve[sd]?\b|see\b|observe)")
_CHOSEN = re.compile(r"tun(e|ing)|select|chos|choos|pick|stopp|hyper-?param|optimi[sz]|grid|\btrained\b|\btest\b")
_RUNS = r"(?:runs?|seeds?|trials?|restarts?|checkpoints?|epochs?|initiali[sz]ations?)"
_BEST = r"(?:best|highest|lowest|max(?:imum)?|peak|top|worst)"
_GAINS = r"gains?|improvements?|differences?|deltas?|δ|drops?|reductions?|degradations?|increases?|decreases?|gaps?|changes? in"
_ASKED = (  # what a word before it in its clause makes harmless, and the words
    (_CHOSEN, rf"(?:held-?out[- ])?(?:{SPLIT})|(?:\d+-fold )?(?:cross[- ])?validation|entwicklungs\w+|"
              rf"{PART}[ -](?:sets?|split|acc\w*|errors?|loss|f1|scores?|results)|(?:development|tuning)[ -](?:data|portion|part|fold)"),
    (_STORY, _GAINS),
    (None, rf"best (?:of|over|out of|among)|max(?:imum)? (?:of|over|across)|{_BEST}(?:[ -][\w-]+){{0,5}}? {_RUNS}|best reported(?=\s*$)|"
           rf"report\w* (?:(?:the|only|their|its) )*{_BEST}(?! (?:known|published|hyper|config|setting))|"
           rf"{_BEST} (?:is|are|was|were) reported|"
           r"peak|top-?[2-9]\d*(?= (?:acc|err|prec|rec))|medians?|"
           r"(?:macro|micro|weighted)(?:[- ]averaged?|-f1)?(?=[ -]|$)|ablations?|oracles?|upper bounds?|retained|"
           r"relative (?:to|scores?|performance|accuracy|f1|errors?|results|numbers|values|percent\w*)|(?:\w+-)?"
           r"normali[sz]ed (?:to|by|scores?|relative|performance)|ensembl\w+|subsets?|average ranks?|p-values?|std|"
           r"standard (?:deviations?|errors?)|variances?"),
)  # fmt: skip
_HARMLESS = (  # what makes words of its clause harmless, and these
    (r"±|mean|average|with|bracket|parenthes|subscript|superscript", r"\bstd\b|standard \w+|variances?"),
    (r"\b(?:in|see) (?:table|tab|appendix|section|fig)", rf"\b(?:{SPLIT}|{PART})\b"),
    (r"below|under|at most|less than|smaller|omitted", r"\bstd\b|standard \w+|variances?"),
    (r"\b(?:no|without)\b", r"\b(?:no|without)(?: \w+)? (?:ensembl\w+|ablations?|oracles?)"),
    (r"bold|underlin|italic|highlight|colou?r|shad|arrow", rf"\b(?:{_BEST}|{_GAINS})\b(?!.*\b{_RUNS}\b)"),
    (r"signific|p ?[<≤]|p-values? ?[<≤]|paired|t-test|bootstrap", rf"\b(?:p-values?|{_GAINS})\b"),
)
_UNIT = re.compile(
    r"(?:in |^\s*)((?:milli|micro|nano)?seconds?|minutes?|hours?|days|[mµn]s|s|[kmg]i?b|(?:kilo|mega|giga)?bytes|"
    r"(?:hundred|thousand|million|billion)s?|(?:units|multiples) of [\w^{}×·-]+)\s*$|"
    r"([×x*·]\s*10+\b|(?:multiplied|scaled|divided) by [\d^{}×·-]+)"
)


# What a mark may mean without making a number another one, and, of those measured by others, what makes it one all the same.
_OF_STATISTICS = re.compile(r"signific|\bp ?[<≤=]|p-values?|t-test|bootstrap|\bbold|underlin")
_OF_ORIGIN = re.compile(
    r"\bours\b|reproduced by|taken from|copied|quoted|"
    r"\b(?:our|our own) (?:method|model|system|runs?|re-?r[ua]n|re-?impl|impl|repro)|re-?implement|re-?r[ua]n\b|"
    r"(?:results|numbers|scores) (?:in|by|from) \[|(?:reported|cited) (?:in|by|from)|as reported|original (?:paper|authors|work)"
)
_OTHERWISE = re.compile(r"\b(?:who|which|with|on|instead|using|but|only|another|other|different)\b")


def explained(text: str, marks: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return a text, with marks as ⟦mark⟧, without what it says of these marks, and what it says of each."""
    rest, found = [], dict[str, str]()
    for sentence in re.split(r"(?<=[.;])\s+(?=[A-Z⟦])|\n", text):
        before, *parts = re.split(r"⟦([^⟦⟧]+)⟧", sentence)
        rest.append(before)
        for mark, after in zip(parts[::2], parts[1::2], strict=True):
            if mark in marks:
                found[mark] = " ".join(filter(None, (found.get(mark), before.strip(), after.strip(" :.;,=)"))))
            else:
                rest.append(after)
    return " ".join(rest), found


def is_harmless(meaning: str) -> bool:
    """Return whether what a mark means leaves a number what it is: significance, the best of a table, or who measured it."""
    text = meaning.casefold()
    return bool(_OF_STATISTICS.search(text) or (_OF_ORIGIN.search(text) and not _OTHERWISE.search(text)))


def split_of(name: str) -> str:
    """Return the word by which a name or value is of another part of the data than the test set; empty if none is."""
    said = words(re.sub(r"[_.()\[\]]|(?<=[a-z])(?=[A-Z])", " ", name))
    others = rf"(?:{SPLIT})|{PART}|(?:held|hold)out"
    return next((word for place, word in enumerate(said)
                 if re.fullmatch(others, word) and "test" not in said[max(0, place - 1) : place + 2]), "")  # fmt: skip


def unit_beside(text: str, metric: str) -> str:
    """Return the unit or factor that a text beside a table says of a metric whose name has none; empty if none does."""
    found = known(metric)
    if found.kind not in ("", "positive") or UNITS & {*words(re.sub(r"[()\[\]]", " ", metric))}:
        return ""
    clauses = (_UNIT.search(clause) for clause in re.split(r"[.;:,()](?!\d)|\n", text.casefold()))
    return next((one[2] or one[1] for one in clauses if one and (one[2] or found.name not in UNITLESS)), "")


def asked_of(text: str, columns: str = "") -> str:
    """Return the word of a text beside a table by which its numbers may be no scores of the test set, or no means; empty if none.

    How something was chosen does not count, nor what bold type means. columns: what names of columns and rows say for themselves.
    """
    said = {*words(re.sub(r"[()\[\]]", " ", columns)), *(word.rstrip("s") for word in words(columns))}
    has = _found(words(columns))
    for asked, named in _asked(text):
        for place, word in asked:
            own = any(one == "test" or split_of(one) for one in said) if place == 0 else said & CHANGING if place == 1 else ()
            if not own and re.split(r"[ -](?!value|\d)", word)[0].rstrip("s") not in said:
                return word
        if has and any(metric.kind != "positive" for metric in named) and not {*named} & {metric for _, metric, _ in has}:
            return named[0].name
    return ""


@lru_cache(16)
def _asked(text: str) -> list[tuple[list[tuple[int, str]], list["Metric"]]]:
    """Return of each clause the words of _ASKED with their places there, and the metrics that its numbers are of; once for all rows."""
    found: list[tuple[list[tuple[int, str]], list[Metric]]] = []
    for clause in re.split(r"[.;:,()](?!\d)|\n", re.sub(r"[_/]", " ", text).casefold()):
        for harmless, those in _HARMLESS:
            clause = re.sub(those, "", clause) if re.search(harmless, clause) else clause
        asked = [
            (place, each[0])
            for place, (before, known_words) in enumerate(_ASKED)
            for said in dict.fromkeys((clause, clause.replace("-", " ")))  # Dev-set, best-of-5
            if (each := re.search(rf"(?<![\w-])(?<!test )(?:{known_words})(?![\w-]| test (?:split|sizes?|sets?))", said))
            and not (before and before.search(said[: each.start()]))
        ]
        other = re.match(OF_METRIC, clause)
        of_metric = words(other[1]) if other else ()
        named = [metric for end, metric, _ in _found(of_metric) if end >= len(of_metric) and metric.name != "top"]
        if asked or named:
            found.append((asked, named))
    return found


# A clause that says of which metric numbers are.
OF_METRIC = (
    r"\s*(?:table \S+ )?(?:all )?(?:the )?(?:(?:results|numbers|values|scores|entries|cells) (?:are|is|show|report|in) )?(?:the )?"
    r"((?:[\w-]+ ){0,2}?[\w-]+)(?: (?:rates?|scores?))?(?: (?:on|of|in|for|over|by|at|are)\b|\s*$)"
)


COUNTS = frozenset("errors hits matches fehler".split())  # names of well-known metrics that counts have, too


class Metric(NamedTuple):
    """A well-known metric.

    name: its usual name, empty if the metric is unknown. kind: fraction and error (0 to 1, or 0 to 100), correlation (-1 to 1, or
    -100 to 100), positive, or empty. An error rate can exceed 100 %. lower_is_better: None if its name doesn't say. of_items: whether
    it is a mean over items.
    """

    name: str = ""
    kind: str = ""
    lower_is_better: bool | None = None
    of_items: bool = True


def words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case; what stands in brackets is left out, but for a percent sign."""
    return tuple(WORD.findall(re.sub(r"[(\[][^()\[\]]*[)\]]", " ", name).casefold().replace("%", " percent ").replace("‰", " permille ")))


@cache
def _metrics() -> dict[tuple[str, ...], Metric]:
    """Return the metrics of metrics.csv by each of their names."""
    with (files("phrasemodels.verdicts") / "metrics.csv").open(encoding="utf-8") as file:
        less = {"lower": True, "higher": False, "": None}
        rows = [(row["names"].split(";"), row["kind"], less[row["better"]], not row["of items"]) for row in csv.DictReader(file)]
    return {words(name): Metric(names[0], kind, lower, mean) for names, kind, lower, mean in rows for name in names}


@cache
def known(name: str) -> Metric:
    """Return the well-known metric that a name ends with, or begins with before "on", "at" or "@"; else an unknown one.

    Words are compared whole. "accuracy drop" or "time to accuracy" are no accuracy.
    """
    text, found = words(name), _found(words(name))
    kinds = {metric.kind for _, metric, _ in found}
    if not found or CHANGING & {*text} or re.match(r"\s*10{0,2}\s*[-−–]", name):
        return Metric()
    end, metric, _ = found[-1]
    if len(kinds) > 1 and not (kinds == {"fraction", "error"} and metric.kind == "error"):  # a top-1 error is an error
        return Metric()
    tail = text[end:]
    if all(word in QUALIFIERS or word == "@" or word.isdigit() for word in tail) or tail[0] in ("on", "at", "@"):
        return metric
    return Metric()


def _found(text: tuple[str, ...]) -> list[tuple[int, Metric, int]]:
    """Return the metrics among words, the longest names first: the place after each, and the number of its words."""
    found, place = [], 0
    while place < len(text):
        length = next((n for n in range(4, 0, -1) if text[place : place + n] in _metrics()), 0)
        if length:
            found.append((place + length, _metrics()[text[place : place + length]], length))
        place += length or 1
    return found


PARAMETER = re.compile(
    r"(?:h?params?|hyper_?param\w*|config|cfg|args|options|settings)[./]|(?:h?params|config|cfg|args)_(?=[a-z]{2})", re.I
)
SETTINGS = frozenset(
    "lr;learning rate;batch size;batch;bs;dropout;weight decay;wd;optimizer;hidden size;hidden dim;layers;heads;shot;shots;fewshot;"
    "limit;revision;temperature;beam;beams;beam size;momentum;warmup;warmup steps;warmup ratio;alpha;top p;lora rank".split(";")
)
KINDS = frozenset("num n number of init initial base peak max train per device".split())  # words before a setting
# Last words of fields that name or time a run, so of no setting; of PLACES if the words before are of runs, as in log_dir, not data_dir.
NO_SETTING = frozenset(
    "random time date host device gpu port tag tags note notes log output out run worker pid job timestamp start started end ended when "
    "created finished commit uuid user author comment comments description hostname node machine command cmd argv message no "
    "ckpt checkpoint".split()
)
PLACES = frozenset("dir directory folder path file filename name id url uri index idx hash sha".split())
OF_RUNS = NO_SETTING | PLACES | frozenset(
    "logs logging checkpoint ckpt artifact save results scores predictions exp experiment trial fold git code config project wandb "
    "sweep tmp".split()
)
# Last words of what a run measures, as in best_epoch, not max_iter.
MEASURED = frozenset(
    "epoch step iter iteration second runtime elapsed flos stopped converged improved correct wrong tp fp tn fn hits matches retries "
    "attempt attempts prediction predictions preds outputs logits history curve matrix".split()
)


def is_measured(name: str) -> bool:
    """Return whether a number or list of this name is measured: by its last word, or as a well-known metric."""
    said = words(name.replace("_", " "))
    return bool(known(name).kind) or (said[-1:] != () and said[-1] in MEASURED and not {"max", "n", "num"} & {*said[:-1]})


def is_setting(name: str) -> bool:
    """Return whether a column or parameter describes a run's making, so it is equal for all seeds."""
    said = words(re.sub(r"_(at|on)$", "", PARAMETER.sub("", name)).replace("_", " "))
    if " ".join(word for word in said if word not in KINDS) in SETTINGS:
        return True
    free = said[-1:] == () or said[-1] in NO_SETTING or (said[-1] in PLACES and {*said} <= OF_RUNS)
    return bool(PARAMETER.match(name)) and not free and not {"seed", "slurm", "mlflow"} & {*said}


# Words of a mean over classes, tokens or samples, which is no share of test items.
MEANS = frozenset(
    "balanced macro micro weighted mean average avg class classes classwise per token tokens word words tag tags tagging label labels "
    "pixel voxel frame node edge slot pos upos xpos ner character char soft partial relaxed vqa expected normalized normalised".split()
)


def is_share(metric: str) -> bool:
    """Return whether a metric can be a share of items that are right or wrong: accuracy or error, not F1, BLEU or pass@10."""
    name, said = known(metric).name, {*words(re.sub(r"[()\[\]_-]", " ", metric))}
    if name == "acc norm":
        return True
    return name in ("", *"accuracy top top1 top5 em error".split(), "success rate") and not MEANS & said


def lower_is_better(metric: str) -> bool | None:
    """Return whether less of a metric is better: by its name, or as its unit is of time or memory, as in speed (ms).

    None: that isn't known, or name and unit say different things.
    """
    units = re.findall(r"[(\[]\s*([a-z]+)\s*(/|per\b)?[^()\[\]]*[)\]]", metric.casefold())
    said, less = known(metric).lower_is_better, any(unit in (TIMES if per else LESS) for unit, per in units)
    return (None if said is False else True) if less else said


UNITLESS = frozenset("perplexity loss fid bpc bpb bpd psnr".split())


def misfit(metric: str, percent: bool = False, printed: str = "") -> str:
    """Say that a metric has a unit that it cannot have, such as BLEU (ms) or perplexity (%), and what to write. Empty if it hasn't.

    percent: its numbers have percent signs. printed: its printed name, if it is another one.
    """
    found = known(metric)
    said = [one or other for one, other in re.findall(r"[(\[]\s*([a-zA-Z]+)\s*[)\]]|[\s_]([a-zA-Z]{2,})$", metric.strip())]
    # not S, B or min, which can be a size or the least value
    units = [unit for unit in said if (unit if len(unit) == 1 else unit.casefold()) in LESS - {"b", "min"}]
    if found.name in UNITLESS and (percent or "percent" in words(metric) or "(%)" in metric):
        units.append("%")
    units += ["‰"] * ("‰" in metric)
    if not units or not (found.name in UNITLESS or found.kind in ("fraction", "error", "correlation")):
        return ""
    scale = "positive" if found.kind == "positive" else "percent"
    option = f"--scale {_quoted(printed or metric)}={scale}"
    return f"{metric!r}: {found.name} is not measured in {units[0]}: take the unit away, or say {option}"


def scale_of_unit(unit: str) -> str:
    """Return the scale of a unit, such as %, BLEU, correlation, MB; empty if it is unknown."""
    if unit in SCALES:
        return unit
    kind = "percent" if unit == "%" else known(unit).kind
    return {"percent": "percent", "fraction": "percent", "correlation": "share", "positive": "positive"}.get(kind, "")


def is_name(text: str) -> bool:
    """Return whether words before a metric can be a data set's name: none is a metric, or makes another one of it."""
    return (
        not _found(words(text))
        and not CHANGING & {*words(text)}
        and words(text)[-1:] not in (("to",), ("per",), ("of",))
        and words(text) not in (("1",), ("100",))
    )


def phrase(name: str) -> tuple[str, ...]:
    """Return the words of a name, with the usual name of each metric in place of its words."""
    text, made, place = words(name), [], 0
    for end, metric, length in _found(text):
        made += [*text[place : end - length], *metric.name.split()]
        place = end
    return (*made, *text[place:])


SIZES = frozenset("params param parameters size layers dim dimension dimensions vocab vocabulary depth width year rank".split())


def is_average(dataset: str) -> bool:
    """Return whether the name of a data set is of a mean over several."""
    said = words(dataset)
    return bool({*said[:1], *said[-1:]} & AVERAGES)


AVERAGES = frozenset("avg average averaged mean overall all total macro micro ø mittel mittelwert durchschnitt moyenne".split())
# Words of a column that is no data set: what its numbers are of the runs.
STATISTICS = frozenset(
    "best max maximum peak worst min minimum median oracle ensemble last final single reported upper lower rel relative vs p".split()
)


def share_among(text: str, others: Iterable[str], ours: Sequence[float], stated: bool) -> str:
    """Say that a printed percentage below 1 may be a share, as others of its metric exceed 1 and ours in percent do not fit."""
    value = abs(float(text.removesuffix("%") or 0))
    large = next((one for one in others if one and abs(float(one.removesuffix("%"))) > 1), "")
    if text.endswith("%") or not 0 < value <= 1 or not large:
        return ""
    near = any(abs(100 * value - abs(one)) <= NEAR for one in ours)
    apart = near or (not stated and max(map(abs, ours), default=0) > SMALL)
    return f"{text} may be a share beside percentages such as {large}: write {100 * value:.10g}, or {text}%" if apart else ""


@dataclass(frozen=True)
class Decision:
    """The scale of a metric's printed numbers, and what ours are multiplied by.

    lower_is_better: None if that isn't known. problem: why nothing can be judged, and what to write; then scale is empty. doubt: what was
    assumed of ours.
    """

    scale: str = ""
    factor: float = 1.0
    lower_is_better: bool | None = None
    problem: str = ""
    doubt: str = ""


class _Pair(NamedTuple):
    printed: float
    ours: list[float]


def decide(
    metric: str,
    pairs: Iterable[tuple[str, Sequence[float]]],
    stated: str = "",
    shares: bool = False,
    percent: bool = False,
) -> Decision:
    """Decide the scale of a metric once, over all its numbers.

    Args:
        metric: Its name; empty for a percentage or share of unknown name.
        pairs: Each printed number as text, such as "0.9" or "87.1%", with our values for it, of which there may be none.
        stated: The scale, where somebody stated it: percent, share, positive or count.
        shares: Ours are shares for certain, such as means over items that are right or wrong.
        percent: Ours say that they are percentages.
    """
    texts = [(text.replace("−", "-").replace(" ", ""), _finite(values)) for text, values in pairs if text]
    numbers = [_Pair(float(text.removesuffix("%")), values) for text, values in texts]
    whole = all(re.fullmatch(r"-?\d+", text) for text, _ in texts) and any(abs(pair.printed) > 1 for pair in numbers)
    if "(%)" in metric or "percent" in words(metric) or any(text.endswith("%") for text, _ in texts):
        stated = stated or "percent"
    found = known(metric) if metric else Metric("", "correlation")  # so it may be negative
    try:
        unit = "share" if shares else "percent" if percent else ""
        if not stated:
            _check_known(metric, found, whole, unit)
        return _decided(metric, found, numbers, stated, unit)
    except ValueError as problem:
        return Decision(lower_is_better=lower_is_better(metric), problem=str(problem))


def _check_known(metric: str, found: Metric, whole: bool, unit: str) -> None:
    """Check that printed numbers cannot be counts, or gains. ValueError: they can. unit: the unit of ours, if they say it."""
    option, said = f"--scale {_quoted(metric)}=", {*words(metric)}
    if not found.kind and (not unit or whole or said & CHANGING):
        raise ValueError(f"unknown metric {metric!r}: say {option}percent, or share (0 to 1), positive or count")
    if whole and said & COUNTS and not said & {"@", "rate"}:
        raise ValueError(f"whole numbers of {metric!r} may be counts: say {option}count or {option}percent")


def _decided(metric: str, found: Metric, pairs: Sequence[_Pair], stated: str, ours: str) -> Decision:
    """Return the scale. ours: the unit of ours, if they say it. ValueError: it cannot be decided."""
    option, lower = f"--scale {_quoted(metric)}=", lower_is_better(metric)
    if stated == "count":
        return Decision("count", 1.0, lower)
    if stated == "positive" or (not stated and found.kind == "positive"):
        if low := [number for pair in pairs for number in (pair.printed, *pair.ours) if number <= 0]:
            raise ValueError(
                f"{low[0]:g} is not positive, as {metric or 'the scale'} has to be: correct it, or say another {option}…"
            )
        return Decision("positive", 1.0, lower)
    scale = stated or _printed_unit(found, pairs, option)
    _check("printed", [pair.printed for pair in pairs], scale, found, option)
    unit, doubt = (ours, "") if ours else _our_unit(found, pairs, scale, bool(stated), option)
    _check("our", [value for pair in pairs for value in pair.ours], unit, found, option)
    if scale == unit:
        return Decision(scale, 1.0, lower, doubt=doubt)
    said = "shares, and multiplied by 100" if unit == "share" else "percentages, and divided by 100"
    return Decision(scale, 100.0 if unit == "share" else 0.01, lower, doubt="" if ours else f"ours are taken as {said}")


def _printed_unit(found: Metric, pairs: Sequence[_Pair], option: str) -> str:
    """Return percent if a printed number exceeds 1, else share. ValueError: they are errors, which can be below 1 %."""
    if not pairs or max(abs(pair.printed) for pair in pairs) > 1:
        return "percent"
    if found.kind == "error":
        raise ValueError(
            f"printed errors of at most 1 may be shares or percentages: say {option}share or {option}percent"
        )
    return "share"


def _our_unit(found: Metric, pairs: Sequence[_Pair], scale: str, stated: bool, option: str) -> tuple[str, str]:
    """Return the unit of ours, and a doubt. ValueError: they may be of either, or are of both."""
    ours = [(pair.printed, value) for pair in pairs for value in pair.ours if value]
    small = [(printed, value) for printed, value in ours if abs(value) <= 1]
    large = [value for _, value in ours if abs(value) > 1 + TOLERANCE]
    if scale == "share" and small and large:
        raise ValueError(f"our {small[0][1]:g} may be a share, {large[0]:g} is none: give all in one unit")
    if scale == "share" and large and found.kind == "error" and min(large) < SMALL:
        raise ValueError(f"our {large[0]:g} may be an error above 1 or a percentage: give all in one unit")
    if not small or not ours:
        return "percent" if large else scale, ""
    if scale == "share":
        return "share", ""
    if large:
        near = NEAR if stated else 100.0
        odd = [v for printed, v in small if abs(printed) >= SMALL and abs(100 * abs(v) - abs(printed)) <= near]
        if odd:
            raise ValueError(f"our {odd[0]:g} may be a share beside the percentage {large[0]:g}: give all in one unit")
        return "percent", ""
    if max(abs(printed) for printed, _ in ours) >= SMALL or all(abs(v) <= abs(printed) / 10 for printed, v in ours):
        return "share", ""
    doubt = "ours lie between 0 and 1, the printed numbers do not: if ours are shares, give them in percent"
    if not stated:
        raise ValueError(f"{doubt}; else say {option}percent")
    return "percent", doubt


def _check(whose: str, values: Iterable[float], unit: str, found: Metric, option: str) -> None:
    """Check that values lie within a unit; errors can be larger, as more words can be wrong than there are. ValueError: one doesn't."""
    end = 100.0 if unit == "percent" else 1.0
    low = 0.0 if found.kind in ("fraction", "error") else -end
    for value in values:
        if value < low - TOLERANCE or (value > end + TOLERANCE and found.kind != "error"):
            raise ValueError(
                f"{whose} {value:g} is no {unit} ({low:g} to {end:g}): correct it, or say {option}… with its scale"
            )


def _finite(values: Sequence[float]) -> list[float]:
    return [float(value) for value in values if math.isfinite(value) and abs(value) < OUT_OF_REACH]


def _quoted(metric: str) -> str:
    name = metric or "METRIC"
    return name if re.fullmatch(r"[\w@.-]+", name) else f"'{name}'"
