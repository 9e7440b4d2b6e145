from .aggregated_rows import AggregatedRows as AggregatedRows, AggregateOnRead as AggregateOnRead
from .epoch import epoch_steps as epoch_steps
from .evaluate import layerwise as layerwise, majority_accuracy as majority_accuracy, roc_auc as roc_auc
from .exactness.check import Exactness as Exactness
from .fetched import BatchRows as BatchRows, FetchedBatch as FetchedBatch, fetch_rows as fetch_rows
from .profile import EpochProfile as EpochProfile
from .ranking import (
    LinkMetrics as LinkMetrics,
    evaluate_links as evaluate_links,
    hits_above as hits_above,
    rank_triples as rank_triples,
    score_ranks as score_ranks,
)
from .row_parts import RowParts as RowParts
from .step import train_step_with as train_step_with
