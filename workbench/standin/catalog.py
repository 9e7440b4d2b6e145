"""The catalog of stand-ins.

The degrees of originals whose distribution is not published are log-normal with a spread of our choice; clustering and
homophily are our choice where `published` has None.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import torch

from workbench.standin.stand_in import Authorship, DegreeLaw, GraphShape, KnowledgeStandIn, Published, StandIn

_OGB = "Hu et al., Open Graph Benchmark, NeurIPS 2020 (dataset statistics)"
_LSC = "Hu et al., OGB-LSC, NeurIPS 2021 datasets and benchmarks (MAG240M)"
_COOPERATIVE = "Balin et al., Cooperative Minibatching in Graph Neural Networks (Table 2)"


def _law(nodes: int, stored: int, sigma: float) -> DegreeLaw:
    return DegreeLaw.lognormal(mean=stored / nodes, sigma=sigma, population=nodes)


# Cumulative degree counts of ogbn-arxiv, made undirected, from its archive.
_ARXIV_DEGREES = DegreeLaw.counted(
    (
        *((1, 20604), (2, 39126), (3, 54353), (4, 66868), (5, 77520), (6, 86333), (7, 94057), (8, 100790)),
        *((10, 111955), (12, 120781), (14, 127989), (17, 136369), (20, 142867), (24, 149168), (29, 154642)),
        *((36, 159489), (45, 162871), (57, 164999), (75, 166520), (100, 167499), (140, 168274), (200, 168717)),
        *((300, 169003), (500, 169177), (800, 169257), (1500, 169314), (3000, 169332), (6000, 169340)),
        (13161, 169343),
    )
)

_ARXIV = StandIn(
    name="synthetic-arxiv",
    nodes=169_343,
    edges=1_166_243,
    features=128,
    classes=40,
    splits=(90_941, 29_799, 48_603),
    reciprocity=0.01448,
    shape=GraphShape(_ARXIV_DEGREES, clustering=0.226, homophily=0.655, chance_clustering=0.015),
    signal=2.0,
    published=Published(
        f"{_OGB}: nodes, edges, split, clustering; the rest counted in the archive ogbn-arxiv.npz",
        nodes=169_343,
        edges=1_166_243,
        features=128,
        classes=40,
        splits=(90_941, 29_799, 48_603),
        largest_degree=13_161,
        degree_quantiles=((0.01, 1), (0.1, 1), (0.25, 3), (0.5, 6), (0.75, 14), (0.9, 27), (0.99, 106)),
        clustering=0.226,
        reciprocity=0.01448,
        homophily=0.655,
    ),
)

_PRODUCTS = StandIn(
    name="synthetic-products",
    nodes=2_449_029,
    edges=123_718_280,
    features=100,
    classes=47,
    splits=(196_615, 39_323, 2_213_091),
    shape=GraphShape(_law(2_449_029, 123_718_280, 1.3), clustering=0.411, homophily=0.8),
    signal=2.0,
    published=Published(
        f"{_OGB}: 61,859,140 undirected edges, stored in both directions",
        nodes=2_449_029,
        edges=123_718_280,
        features=100,
        classes=47,
        splits=(196_615, 39_323, 2_213_091),
        clustering=0.411,
        reciprocity=1.0,
    ),
)

_REDDIT = StandIn(
    name="synthetic-reddit",
    nodes=232_965,
    edges=114_615_892,
    features=602,
    classes=41,
    splits=(153_431, 23_831, 55_703),
    shape=GraphShape(
        _law(232_965, 114_615_892, 0.95), clustering=0.25, homophily=0.6, class_skew=0.5, largest_block=512
    ),
    signal=2.0,
    published=Published(
        "Hamilton et al., NeurIPS 2017, as DGL and PyTorch Geometric load it (edges, features also in Table 4 "
        "of Yang et al., Betty, ASPLOS 2023)",
        nodes=232_965,
        edges=114_615_892,
        features=602,
        classes=41,
        splits=(153_431, 23_831, 55_703),
        reciprocity=1.0,
    ),
)

_YELP = StandIn(
    name="synthetic-yelp",
    nodes=716_847,
    edges=13_954_820,
    features=300,
    classes=100,
    splits=(537_635, 71_685, 107_527),
    multi_label=True,
    shape=GraphShape(_law(716_847, 13_954_820, 1.4), clustering=0.1, homophily=0.6),
    signal=3.0,
    published=Published(
        "Zeng et al., GraphSAINT, ICLR 2020 (Table 1): 6,977,410 undirected edges, split 75 / 10 / 15 %; both "
        f"directions as in {_COOPERATIVE}",
        nodes=716_847,
        edges=13_954_820,
        features=300,
        classes=100,
        splits=(537_635, 71_685, 107_527),
        reciprocity=1.0,
    ),
)

_FLICKR = StandIn(
    name="synthetic-flickr",
    nodes=89_250,
    edges=899_756,
    features=500,
    classes=7,
    splits=(44_625, 22_312, 22_313),
    shape=GraphShape(_law(89_250, 899_756, 1.5), clustering=0.1, homophily=0.6),
    signal=1.0,
    published=Published(
        "Zeng et al., GraphSAINT, ICLR 2020 (Table 1): 899,756 edges, split 50 / 25 / 25 %; stored edges as in "
        f"{_COOPERATIVE}",
        nodes=89_250,
        edges=899_756,
        features=500,
        classes=7,
        splits=(44_625, 22_312, 22_313),
        reciprocity=1.0,
    ),
)

_PAPERS = StandIn(
    name="synthetic-papers100M",
    nodes=111_059_956,
    edges=1_615_685_872,
    features=128,
    classes=172,
    splits=(1_207_179, 125_265, 214_338),
    reciprocity=0.01,
    default_scale=0.01,
    only_split_labelled=True,
    shape=GraphShape(_law(111_059_956, 2 * 1_615_685_872, 1.4), clustering=0.085, homophily=0.6),
    signal=3.0,
    published=Published(
        f"{_OGB}; only nodes of the split have labels",
        nodes=111_059_956,
        edges=1_615_685_872,
        features=128,
        classes=172,
        splits=(1_207_179, 125_265, 214_338),
        clustering=0.085,
    ),
)

_MAG_PAPERS, _MAG_AUTHORS, _MAG_INSTITUTIONS = 121_751_666, 122_383_112, 25_721
_MAG_CITES, _MAG_WRITES, _MAG_AFFILIATIONS = 1_297_748_926, 386_022_720, 44_592_586

_MAG = StandIn(
    name="synthetic-mag240M",
    nodes=_MAG_PAPERS,
    edges=_MAG_CITES,
    features=768,
    classes=153,
    splits=(1_112_392, 138_949, 146_818),
    reciprocity=0.01,
    default_scale=0.001,
    only_split_labelled=True,
    feature_dtype=torch.float16,
    shape=GraphShape(_law(_MAG_PAPERS, 2 * _MAG_CITES, 1.4), clustering=0.1, homophily=0.6),
    signal=3.0,
    published=Published(
        f"{_LSC}: nodes and edges of three types in all; both directions are the 3.44 × 10⁹ edges of {_COOPERATIVE}",
        nodes=_MAG_PAPERS + _MAG_AUTHORS + _MAG_INSTITUTIONS,
        edges=_MAG_CITES + _MAG_WRITES + _MAG_AFFILIATIONS,
        features=768,
        classes=153,
        splits=(1_112_392, 138_949, 146_818),
    ),
    authors=Authorship(
        authors=_MAG_AUTHORS,
        institutions=_MAG_INSTITUTIONS,
        writes=_MAG_WRITES,
        affiliations=_MAG_AFFILIATIONS,
        papers_per_author=_law(_MAG_AUTHORS, _MAG_WRITES, 1.2),
        authors_per_paper=_law(_MAG_PAPERS, _MAG_WRITES, 0.7),
        authors_per_institution=_law(_MAG_INSTITUTIONS, _MAG_AFFILIATIONS, 1.0),
    ),
)

_MAG_CITATIONS = replace(
    _MAG,
    name="synthetic-mag240M-cites",
    authors=None,
    published=Published(
        f"{_LSC}: papers and citations alone, as MariusGNN's MAG240M-Cites",
        nodes=_MAG_PAPERS,
        edges=_MAG_CITES,
        features=768,
        classes=153,
        splits=(1_112_392, 138_949, 146_818),
    ),
)

_FB15K_237 = KnowledgeStandIn(
    name="synthetic-fb15k-237",
    entities=14_541,
    relations=237,
    splits=(272_115, 17_535, 20_466),
    heads=DegreeLaw.counted(
        (
            *((0, 650), (1, 1318), (2, 1789), (3, 2243), (4, 2761), (6, 3888), (8, 4968), (11, 6106), (15, 7453)),
            *((20, 9233), (27, 11125), (36, 12550), (50, 13466), (70, 14029), (100, 14330), (150, 14440)),
            *((250, 14492), (400, 14522), (700, 14538), (1000, 14540), (1518, 14541)),
        )
    ),
    tails=DegreeLaw.counted(
        (
            *((0, 1037), (1, 1850), (2, 2610), (3, 3452), (4, 4279), (6, 5732), (8, 6928), (11, 8278), (15, 9688)),
            *((20, 11071), (27, 12336), (36, 13200), (50, 13724), (70, 14055), (100, 14236), (150, 14349)),
            *((250, 14432), (400, 14474), (700, 14511), (1000, 14524), (1500, 14532), (2500, 14534)),
            *((4000, 14538), (7124, 14541)),
        )
    ),
    relation_counts=DegreeLaw.counted(
        (
            *((44, 0), (103, 2), (124, 14), (148, 32), (182, 53), (241, 78), (320, 98), (425, 117), (550, 137)),
            *((744, 155), (1012, 177), (1470, 190), (2278, 198), (3228, 213), (4529, 222), (6482, 227)),
            *((9000, 231), (12000, 233), (15000, 235), (16391, 237)),
        )
    ),
    published=Published(
        "Toutanova & Chen, CVSC 2015; degrees counted in the archive fb15k-237.npz",
        nodes=14_541,
        edges=310_116,
        classes=237,
        splits=(272_115, 17_535, 20_466),
        largest_degree=8_642,
        degree_quantiles=((0.01, 1), (0.1, 6), (0.25, 12), (0.5, 26), (0.75, 46), (0.9, 76), (0.99, 314)),
    ),
)


def _hubs(entities: int, triples: int) -> dict[str, DegreeLaw]:
    """Heads and tails of a large knowledge graph: a few entities, such as countries, end many triples."""
    return {"heads": _law(entities, triples, 1.0), "tails": _law(entities, triples, 2.0)}


_FREEBASE = KnowledgeStandIn(
    name="synthetic-freebase86M",
    entities=86_054_151,
    relations=14_824,
    splits=(304_727_650, 16_929_318, 16_929_308),
    **_hubs(86_054_151, 338_586_276),  # pyright: ignore[reportArgumentType]
    relation_counts=_law(14_824, 338_586_276, 3.0),
    default_scale=0.005,
    published=Published(
        "Zheng et al., DGL-KE, SIGIR 2020 (Freebase)",
        nodes=86_054_151,
        edges=338_586_276,
        classes=14_824,
        splits=(304_727_650, 16_929_318, 16_929_308),
    ),
)

# The size of the split is ours: the original's is not of triples, but of the true tails of (head, relation).
_WIKIKG = KnowledgeStandIn(
    name="synthetic-wikikg90M",
    entities=87_143_637,
    relations=1_315,
    splits=(502_220_369, 1_000_000, 1_000_000),
    **_hubs(87_143_637, 504_220_369),  # pyright: ignore[reportArgumentType]
    relation_counts=_law(1_315, 504_220_369, 2.5),
    default_scale=0.005,
    published=Published(
        "Hu et al., OGB-LSC, NeurIPS 2021 datasets and benchmarks (WikiKG90M)",
        nodes=87_143_637,
        edges=504_220_369,
        classes=1_315,
    ),
)

STANDINS: Mapping[str, StandIn | KnowledgeStandIn] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            *(_ARXIV, _PRODUCTS, _REDDIT, _YELP, _FLICKR, _PAPERS, _MAG, _MAG_CITATIONS),
            *(_FB15K_237, _FREEBASE, _WIKIKG),
        )
    }
)
