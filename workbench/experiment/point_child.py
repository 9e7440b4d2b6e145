"""The child's side of `point_process`: it runs one point."""

import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workbench.experiment.point_process import Order, Outcome


def main() -> None:
    """The child's program: receive an order, run the point, send the outcome."""
    channel = Connection(int(sys.argv[1]))
    order = channel.recv()
    channel.send(run_order(order))


def run_order(order: Order) -> Outcome:
    """Run a point in this process; its errors are outcomes."""
    from workbench.experiment.attempt import described

    try:
        return Outcome(rows=_rows(order))
    except Exception as error:
        return Outcome(None, *described(error))


def _rows(order: Order) -> list[dict[str, Any]]:
    import torch

    from workbench.experiment.figure_loader import load_experiment
    from workbench.tracking.mlflow_fields import plain_rows

    torch.set_num_threads(order.torch_threads)
    experiment = load_experiment(order.sweep)
    if _edited_since(order.read_at) and experiment.code().digest != order.code:
        raise RuntimeError(f"the code of {order.sweep} was edited after this process read it; restart the sweep")
    return plain_rows(experiment.module.run(experiment.module.Config.model_validate(order.config)))


def _edited_since(seconds: float) -> bool:
    """A cheap first look: to compute the digest of the code takes longer than many points."""
    from workbench.files import FileStamp
    from workbench.paths import experiments_folder

    folders = (Path(__file__).parents[1], experiments_folder())
    return any(FileStamp.of(file).changed_seconds >= seconds for folder in folders for file in folder.rglob("*.py"))
