"""Tables of Betty's sweeps as they would be if the paper's claims held, to be spoiled by tests."""

import pandas as pd

SHARE = {"reg": 1.0, "metis": 1.2, "range": 1.5, "random": 1.6, "star_refined": 0.5}
COUNTS = [1, 2, 4, 8, 16]


def partitioners() -> pd.DataFrame:
    """Rows of Figure 11's sweep: two data sets, two depths, GAT by REG."""
    rows = []
    for dataset in ("x", "y"):
        for model, fanouts, methods in (
            ("sage-mean", "[10, 25]", SHARE),
            ("sage-mean", "[5, 10, 15]", SHARE),
            ("gat", "[10, 25]", {"reg": 1.0}),
        ):
            for method, share in methods.items():
                rows += [_row(dataset, model, fanouts, method, share, k) for k in COUNTS]
    return pd.DataFrame(rows)


def redundancies() -> pd.DataFrame:
    """Rows of Figure 16's sweep: in one data set half of the nodes are seeds, in the other 8 %."""
    table = partitioners().query("model == 'sage-mean'").drop(columns="model")
    return table.assign(share_of_nodes=table.dataset.map({"x": 0.5, "y": 0.08}))


def _row(dataset: str, model: str, fanouts: str, method: str, share: float, k: int) -> dict:
    ratio = 1 + share * (k - 1) / 10
    return {
        "dataset": dataset,
        "model": model,
        "fanouts": fanouts,
        "method": method,
        "num_parts": k,
        "inputs_ratio": ratio,
        "total_inputs": round(1000 * ratio),
        "full_inputs": 1000,
        "peak_bytes": round(2**30 * ratio / k),
        "forward_seconds": 0.2 * ratio,
        "backward_seconds": 0.2 * ratio,
        "step_seconds": 0.01,
        "epoch_seconds": 0.5 * ratio,
        "epoch_seconds_min": 0.4 * ratio,
        "epoch_seconds_max": 0.7 * ratio,
        "status": "FINISHED",
    }


def micro_against_mini() -> pd.DataFrame:
    """Rows of Table 6."""
    table = partitioners().query("model == 'sage-mean' and fanouts == '[10, 25]' and method in ('reg', 'random')")
    return table.assign(approach=table.method.map({"reg": "micro", "random": "mini"}), method="reg")
