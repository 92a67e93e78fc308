"""My study: which encoder classifies sentences best, and do the phrases of a parser help?"""

from phrasemodels.study import (
    BiLSTMMaxConfig,
    HighwayMemory,
    HypernodeEncoderConfig,
    PsanConfig,
    TransformerEncoderConfig,
    table,
)

TABLES = {
    "1": table(
        rows={
            "BiLSTM": BiLSTMMaxConfig(64, 64),
            "Transformer": TransformerEncoderConfig,
            "Pairs": HypernodeEncoderConfig,  # attention over words and pairs of neighbours (paper 000)
            "Phrases": PsanConfig(64, levels=3, dropout=0.1, memory=HighwayMemory),  # of the English parser (paper 001)
        },
        corpus="polarity",
        size={"layers": 1},
        train={"learning_rate": 2e-3, "evaluate_every": 50},
    )
}
