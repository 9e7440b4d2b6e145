"""Tables of the sweeps of Cooperative Minibatching as they would be if its claims held, to be spoiled by tests."""

import pandas as pd

SIZES = (16, 64, 256, 1024)
CONCAVITY = {"RW": 0.9, "NS": 0.8, "LABOR-0": 0.7, "LABOR-*": 0.6}
"""Exponent of the batch size in the number of input nodes."""


def work() -> pd.DataFrame:
    """Rows of Figure 3's sweep: two data sets, both tasks, four samplers, three permutations that differ slightly."""
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "task": task,
                "sampler": sampler,
                "batch_size": size,
                "permutation": permutation,
                "num_nodes": 1e5,
                "num_seeds": size if task == "node" else 3 * size,
                "compared_size": 256,
                "alone_inputs": 100.0,
                "num_inputs": 100.0 * size**exponent * (1 + 1e-5 * (permutation - 1)),
                "expected_inputs": 100.0 * size**exponent if task == "node" and sampler != "LABOR-*" else None,
                "status": "FINISHED",
            }
            for dataset in ("x", "y")
            for task in ("node", "edge")
            for sampler, exponent in CONCAVITY.items()
            for size in SIZES
            for permutation in range(3)
        ]
    )


def densities() -> pd.DataFrame:
    """Rows of the density sweep: 4 edges per node in the whole graph of 1,000 nodes."""
    return pd.DataFrame(
        [
            {
                "dataset": "x",
                "method": method,
                "share": share,
                "permutation": permutation,
                "batch_size": 1000 * share,
                "num_edges": (edges := 4000 * share**power * (1 + 1e-5 * (permutation - 1))),
                "density": edges / (1000 * share),
                "expected_edges": 4000 * share**power if method in ("uniform", "cluster") else None,
                "status": "FINISHED",
            }
            for method, power in (("uniform", 2), ("cluster", 1.5), ("node", 1.3), ("walk", 1.2))
            for share in (0.1, 0.4, 1.0)
            for permutation in range(3)
        ]
    )


KAPPAS = (1, 4, 256, "inf")


def dependent_training() -> pd.DataFrame:
    """Rows of Table 3's sweep: better with κ by its own sampler, equal with all neighbours, but for κ = ∞."""
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "kappa": kappa,
                "seed": seed,
                "step": step,
                "loss": 1 - 0.1 * place + 0.01 * seed - step / 100 + (jitter := 1e-4 * (seed * (place + 1) % 3)),
                "val_f1_sampled": 0.6 + 0.05 * place + step / 2000 + jitter,
                "val_f1": 0.8 + 0.01 * seed + step / 2000 - 0.02 * (kappa == "inf") + jitter,
                "majority": 0.3,
                "status": "FINISHED",
            }
            for dataset in ("x", "y")
            for place, kappa in enumerate(KAPPAS)
            for seed in range(5)
            for step in (10, 20, 30, 40)
        ]
    )


def independent_parts() -> pd.DataFrame:
    """Rows of Figure 9's sweep: the same curves, whatever the number of parts."""
    return pd.DataFrame(
        [
            {
                "dataset": "x",
                "sampler": sampler,
                "num_parts": parts,
                "seed": seed,
                "step": step,
                "loss": 1 + 0.01 * seed - step / 100 + (jitter := 1e-4 * (seed * parts % 3)),
                "val_f1": 0.8 + 0.01 * seed + step / 2000 + jitter,
                "majority": 0.3,
                "status": "FINISHED",
            }
            for sampler in ("NS", "LABOR-0")
            for parts in (1, 2, 8)
            for seed in range(5)
            for step in (5, 10, 15, 20)
        ]
    )


def misses() -> pd.DataFrame:
    """Rows of Figure 5a's sweep: LRU's miss rate halves with every fourfold κ, and Belady's is half of it."""
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "sampler": "LABOR-0",
                "batch_size": 32,
                "capacity_rows": 10,
                "num_inputs": 8.0,
                "policy": policy,
                "kappa": kappa,
                "seed": seed,
                "run": run,
                "miss_rate": least * 0.8 / kappa**0.5 + 1e-5 * (seed + run),
                "status": "FINISHED",
            }
            for dataset in ("x", "y")
            for policy, least in (("lru", 1.0), ("fifo", 1.1), ("belady-bypass", 0.5))
            for kappa in (1, 4, 16)
            for seed in (0, 2)
            for run in range(2)
        ]
    )


def dependence() -> pd.DataFrame:
    """Rows of the sweep on dependence: half of the misses, smoothed evenly, nested with twice the mean in one batch."""
    ways = {"independent": (100.0, 1.1), "nested": (50.0, 2.0), "smoothed": (49.0, 1.2)}
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "sampler": "LABOR-0",
                "kappa": 16,
                "dependence": way,
                "run": run,
                "miss_rate": mean / 125 + 1e-5 * run,
                "mean_misses": mean,
                "largest_misses": worst * mean,
                "status": "FINISHED",
            }
            for dataset in ("x", "y")
            for way, (mean, worst) in ways.items()
            for run in range(3)
        ]
    )


def ranks() -> pd.DataFrame:
    """Rows of Table 7's sweep: cooperating PEs have as many of an independent PE's nodes as P^-0.3."""
    rows = []
    for ranks, run in ((ranks, run) for ranks in (2, 4, 8) for run in range(3)):
        for ownership, minibatching in (("random", "independent"), ("random", "cooperative"), ("metis", "cooperative")):
            gain = 1.0 if minibatching == "independent" else ranks**-0.3
            share = 0.0 if minibatching == "independent" else (1 - 1 / ranks) * (1 if ownership == "random" else 0.4)
            row = {"dataset": "x", "sampler": "LABOR-0", "num_ranks": ranks, "ownership": ownership, "run": run}
            row |= {"minibatching": minibatching, "imbalance": 1.1, "duplication": 1 / gain, "status": "FINISHED"}
            row["cross_edge_share"] = share * (1 + 1e-5 * (run - 1))
            for hop in (1, 2, 3):
                owned = 10.0**hop * gain
                row |= {f"owned_{hop}": owned, f"needed_{hop}": 1.4 * owned, f"edges_{hop}": 2 * owned}
                row[f"halo_{hop}"] = 1.4 * owned * share * 0.9
            rows.append(row)
    return pd.DataFrame(rows)


def rank_misses() -> pd.DataFrame:
    """Rows of Figure 5b's sweep: half of the rows, of which 45 % as many miss; one cache misses as often."""
    work = {"independent": (100.0, 0.8), "cooperative": (50.0, 0.36), "one PE, one cache": (50.0, 0.365)}
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "sampler": "LABOR-0",
                "batch_size": 8,
                "num_ranks": 4,
                "minibatching": minibatching,
                "kappa": kappa,
                "run": run,
                "capacity_rows": 30,
                "num_inputs": inputs,
                "miss_rate": (miss := least / kappa**0.25 * (1 + 1e-5 * run)),
                "missed_rows": inputs * miss,
                "status": "FINISHED",
            }
            for dataset in ("x", "y")
            for minibatching, (inputs, least) in work.items()
            for kappa in (1, 4, 16)
            for run in range(3)
        ]
    )
