"""Tables of the cost model's figures as they would be if their claims held, to be spoiled by tests."""

from math import log2

import pandas as pd

SYSTEMS = {"4 A100": 4, "8 A100": 8, "16 V100": 16}
MAG = "synthetic-mag240M"
MODELS = {"synthetic-papers100M": "gcn", MAG: "rgcn"}


def stages() -> pd.DataFrame:
    """Rows of Table 4's sweep: cooperative work per PE falls by a tenth with every doubling of the PEs."""
    return pd.DataFrame(
        [
            _stage_row(dataset, model, sampler, system, cooperative)
            for dataset, model in MODELS.items()
            for sampler in ("LABOR-0", "NS")
            for system in SYSTEMS
            for cooperative in (False, True)
        ]
    )


def _stage_row(dataset: str, model: str, sampler: str, system: str, cooperative: bool) -> dict[str, object]:
    num_pes = SYSTEMS[system]
    share = 0.9 ** log2(num_pes) if cooperative else 1.0
    dependent = sampler == "LABOR-0"
    exchanged = 1e-3 * cooperative
    copies = {"copy": 90e-3 * share, "cache": 70e-3 * share, "kappa": 40e-3 * share**1.5 if dependent else None}
    hidden = (3e-3 if model == "gcn" else 1e-3) * cooperative
    total = 1e-3 * share + (copies["kappa"] or copies["cache"]) + 4e-3 * share + exchanged + hidden
    arithmetic = (1e-3 if model == "gcn" else 50e-3) * share
    return {
        "dataset": dataset,
        "model": model,
        "sampler": sampler,
        "approach": "cooperative" if cooperative else "independent",
        "system": system,
        "num_pes": num_pes,
        "owned_3": 400e3 * share,
        "halo_3": 300e3 * cooperative,
        "cross_ratio": 0.9 * (1 - 1 / num_pes) * cooperative,
        "cache_miss_rate": 0.8,
        "kappa_miss_rate": 0.4 * share**0.5 if dependent else None,
        "gamma": 2e12,
        "alpha": 600e9,
        "beta": 64e9,
        "flops": 19.5e12,
        "relations": 1.0 if model == "gcn" else 2.5,
        "work_bytes": 4e9 * share,
        "sampling_seconds": 1e-3 * share,
        **{
            f"{name}_seconds": None if seconds is None else seconds + (exchanged if name == "copy" else 0)
            for name, seconds in copies.items()
        },
        "forward_backward_seconds": 4e-3 * share + hidden,
        "arithmetic_seconds": arithmetic,
        "sampling_exchange_seconds": 1e-5 * cooperative,
        "copy_exchange_seconds": exchanged,
        "forward_backward_exchange_seconds": hidden,
        "total_seconds": total,
        "total_with_arithmetic_seconds": total + arithmetic,
        "status": "FINISHED",
    }


def scaling() -> pd.DataFrame:
    """Rows of section 4.3's sweep: METIS exchanges half as much and is less balanced."""
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "model": model,
                "ownership": ownership,
                "num_pes": num_pes,
                "edges_3": 500e3 * 0.95 ** (num_pes - 1),
                "alone_edges_3": 500e3,
                "alone_bandwidth_seconds": 2e-3,
                "alone_forward_backward_seconds": 7e-3 if model == "gcn" else 52e-3,
                "cross_ratio": 0.5,
                "imbalance": 1 + 0.1 * metis * (num_pes > 1) + 0.01,
                "exchange_seconds": exchange,
                "bandwidth_seconds": (memory := 2e-3 * 0.95 ** (num_pes - 1) + exchange),
                "forward_backward_seconds": (
                    seconds := memory + (5e-3 if model == "gcn" else 50e-3) * 0.95 ** (num_pes - 1)
                ),
                "slowest_forward_backward_seconds": seconds * (1 + 0.1 * metis),
                "inputs_forward_backward_seconds": seconds * (1.2 if model == "gat" else 1),
                "status": "FINISHED",
            }
            for model, dataset in {"gcn": "synthetic-papers100M", "rgcn": MAG, "gat": MAG}.items()
            for metis, ownership in enumerate(("random", "metis"))
            for num_pes in (1, 2, 3, 4)
            for exchange in ((1 - 0.5 * metis) * 1e-3 * (1 - 1 / num_pes),)
        ]
    )
