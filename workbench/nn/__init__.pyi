from .decoders import (
    ComplEx as ComplEx,
    Decoder as Decoder,
    DistMult as DistMult,
    DotProduct as DotProduct,
    TransE as TransE,
)
from .dropout import HashDropout as HashDropout
from .gcn import symmetric_norm as symmetric_norm
from .model import LayerSize as LayerSize, ModelWork as ModelWork, model_work as model_work
from .pair_losses import (
    PairScores as PairScores,
    logistic_pair_loss as logistic_pair_loss,
    pair_scores as pair_scores,
    softmax_pair_loss as softmax_pair_loss,
)
