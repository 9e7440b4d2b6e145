"""Values of options, repeated so that help and completion need not import torch; a test compares both."""

SIZES = ("smoke", "real", "paper")
FORMATS = ("svg", "pdf", "png", "csv", "tex")
EXECUTORS = ("processes", "ray")
MODELS = ("sage-mean", "sage-gcn", "sage-pool", "sage-lstm", "gcn", "gin", "gat", "rgcn")
PARTITIONERS = (
    "range",
    "random",
    "metis",
    "reg",
    "reg_unweighted",
    "reg_normalized",
    "star",
    "star_refined",
    "hypergraph",
    "hypergraph_deep",
    "hypergraph_refined",
)
FAST_PARTITIONERS = tuple(name for name in PARTITIONERS if not name.startswith("hypergraph"))
OPTIMIZERS = ("adam", "adamw", "sgd")
STRATEGIES = ("even", "split")
LSTMS = ("onednn", "native", "cudnn")
