"""The partition methods by name, one module each."""

from collections.abc import Mapping
from types import MappingProxyType

from workbench.partition.batch.cluster import prepare_cluster
from workbench.partition.batch.hypergraph import prepare_hypergraph, prepare_hypergraph_deep
from workbench.partition.batch.metis import prepare_metis
from workbench.partition.batch.options import POLICIES
from workbench.partition.batch.prepared_batch import Prepare
from workbench.partition.batch.random import prepare_random
from workbench.partition.batch.range import prepare_range
from workbench.partition.batch.refined import prepare_hypergraph_refined, prepare_star_refined
from workbench.partition.batch.reg import prepare_reg, prepare_reg_normalized, prepare_reg_unweighted
from workbench.partition.batch.star import prepare_star

PARTITION_METHODS: Mapping[str, Prepare] = MappingProxyType(
    {
        "range": prepare_range,
        "random": prepare_random,
        "metis": prepare_metis,
        "reg": prepare_reg,
        "reg_unweighted": prepare_reg_unweighted,
        "reg_normalized": prepare_reg_normalized,
        "star": prepare_star,
        "star_refined": prepare_star_refined,
        "hypergraph": prepare_hypergraph,
        "hypergraph_deep": prepare_hypergraph_deep,
        "hypergraph_refined": prepare_hypergraph_refined,
        "cluster": prepare_cluster,
    }
)

PARTITION_CHOICES = (*POLICIES, *PARTITION_METHODS)
"""The methods that `Partitioner` accepts: `PARTITION_METHODS`, and the policies that choose one of them."""
