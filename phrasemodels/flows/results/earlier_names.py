"""Earlier and present names of the classes and functions in saved model configurations.

Whoever renames or moves such a part adds a line here, so that saved models can still be loaded.
"""

_MOVED = {
    "encoders.bilstm:BiLstmConfig": "encoders.bilstm:BiLSTMMaxConfig",
    "encoders.elsewhere:LevelledConfig": "encoders.adapters:PsanTokenEncoderConfig",
    "encoders.elsewhere:SummarisedConfig": "encoders.adapters:PooledEncoderConfig",
    "encoders.psan:kept": "encoders.psan:keep_activations",
    "encoders.psan:recomputed": "encoders.psan:recompute_activations",
    "layers.arcs:once": "layers.scorers:tanh_once",
    "layers.arcs:twice": "layers.scorers:tanh_twice",
    "layers.attention:softmax_hadamard": "encoders.hypernode:softmax_hadamard",
    "layers.attention:softmax_within": "encoders.hypernode:softmax_within",
    "layers.ngrams:BiLSTM": "layers.ngrams:NgramBiLSTM",
    "layers.ngrams:BiRNN": "layers.ngrams:NgramBiRNN",
    "layers.ngrams:Mean": "layers.ngrams:NgramMean",
    "layers.ngrams:Sum": "layers.ngrams:NgramSum",
    "layers.weights:Hard": "layers.attention_weights:HardWeights",
    "layers.weights:MarginalSegments": "layers.attention_weights:MarginalSegmentWeights",
    "layers.weights:Segments": "layers.attention_weights:SegmentWeights",
    "layers.weights:SegmentsByEdge": "layers.attention_weights:EdgeSegmentWeights",
    "layers.weights:Sigmoid": "layers.attention_weights:SigmoidWeights",
    "layers.weights:SingleRootTrees": "layers.attention_weights:SingleRootTreeWeights",
    "layers.weights:Softmax": "layers.attention_weights:SoftmaxWeights",
    "layers.weights:Trees": "layers.attention_weights:TreeWeights",
    "models.decomposable:Frozen": "models.decomposable:FrozenEmbedding",
    "models.decomposable:Learned": "models.decomposable:LearnedEmbedding",
    "models.memory:Binary": "models.fact_potentials:BinaryPotentials",
    "models.memory:BinaryOnce": "models.fact_potentials:BinaryPotentialsOnce",
    "models.memory:BinaryPotentials": "models.fact_potentials:BinaryPotentials",
    "models.memory:BinaryPotentialsOnce": "models.fact_potentials:BinaryPotentialsOnce",
    "models.memory:Unary": "models.fact_potentials:UnaryPotentials",
    "models.memory:UnaryPotentials": "models.fact_potentials:UnaryPotentials",
    "models.parser:apart": "models.parser:separately",
    "models.sentence_pair:difference": "models.sentence_pair:signed_difference",
    "models.sentence_pair:distance": "models.sentence_pair:absolute_difference",
}
PRESENT_NAME = {f"phrasemodels.{old}": f"phrasemodels.{new}" for old, new in _MOVED.items()}
