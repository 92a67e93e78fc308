"""My study: which encoder classifies sentences best, and do the phrases of a parser help?"""

from phrasemodels.study import (
    RIGHT,
    Answer,
    BiLSTMMaxConfig,
    ClassificationRecipe,
    ClassifierConfig,
    Corpus,
    Experiment,
    HighwayMemory,
    HypernodeEncoderConfig,
    Levels,
    PooledEncoderConfig,
    Profile,
    PsanConfig,
    Row,
    Size,
    TableName,
    TrainConfig,
    TransformerEncoderConfig,
    experiments,
    none,
)

PAPER = "my-study"  # as in phrasemodels.toml
PROFILES = {
    "sample": Profile(
        Size(d=64, heads=2, layers=1, d_ff=128, dropout=0.1, hidden=64, lstm=64),
        TrainConfig(steps=300, batch_tokens=1500, learning_rate=2e-3, evaluate_every=50, checkpoint_every=100),
        ClassificationRecipe(Corpus("polarity")),
    )
}
WORDS = {"structure": Levels(trees=none)}  # no phrases: nothing is parsed


def bilstm(size: Size) -> ClassifierConfig:
    """The maximum over the states of a bidirectional LSTM."""
    return ClassifierConfig(BiLSTMMaxConfig(size.d, size.lstm), hidden=size.hidden, dropout=size.dropout)


def transformer(size: Size) -> ClassifierConfig:
    """A Transformer over words, pooled."""
    encoder = PooledEncoderConfig(TransformerEncoderConfig(**size.encoder), dropout=size.dropout)
    return ClassifierConfig(encoder, hidden=size.hidden, dropout=size.dropout)


def pairs(size: Size) -> ClassifierConfig:
    """Attention over words and pairs of neighbours (paper 000), pooled."""
    encoder = PooledEncoderConfig(HypernodeEncoderConfig(**size.encoder), longest=2, dropout=size.dropout)
    return ClassifierConfig(encoder, hidden=size.hidden, dropout=size.dropout)


def phrases(size: Size) -> ClassifierConfig:
    """Attention inside the phrases of the English parser, level by level (paper 001)."""
    encoder = PsanConfig(size.d, levels=3, dropout=size.dropout, memory=HighwayMemory)
    return ClassifierConfig(encoder, hidden=size.hidden, dropout=size.dropout)


ROWS = (
    Row("bilstm", "BiLSTM-Max", "baseline", bilstm, WORDS),
    Row("transformer", "Transformer", "", transformer, WORDS),
    Row("pairs", "Hypernodes", "pairs", pairs, WORDS),
    Row("phrases", "PSAN", "parsed phrases", phrases),
)


def answers(row: Row) -> tuple[Answer, ...]:
    """No number is printed: rows are compared with the first one, by accuracy."""
    return (Answer("accuracy", statistic=RIGHT), Answer("macro_f1"))


def table_1(profile: str) -> list[Experiment]:
    """Table 1: four classifiers of sentences. `experiments` lists this sentence; PROFILES has the sizes."""
    if profile not in PROFILES:
        return []
    return experiments(TableName(PAPER, "1", "table1"), profile, PROFILES[profile], ROWS, answers)


TABLES = {"1": table_1}
