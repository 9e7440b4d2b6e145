"""What every grid point is told: its data set, device and seed. Experiments add their own fields."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, NonNegativeInt, field_validator

from workbench.core.errors import check_choice
from workbench.experiment.spec import Strict


class DataConfig(Strict):
    """Arguments of `workbench.load_dataset`; a plain name stands for the set as published.

    Args:
        name: of the set.
        undirected: see `load_dataset`, like what follows.
        self_loops: reverse edges and self-loops are added, removed or left.
        features: what nodes start with.
        split: which public one.
        scale: of a stand-in.
        seed: of a stand-in, random features and a split.
        otherwise: the set to take where this one is not at hand.
    """

    name: str
    undirected: bool | None = None
    self_loops: bool | None = None
    features: str = "given"
    split: NonNegativeInt = 0
    scale: float | None = Field(default=None, gt=0, le=1)
    seed: int = 0
    otherwise: "DataConfig | None" = None

    def load(self) -> Any:
        """The data set."""
        from workbench.datasets.load import load_dataset

        return load_dataset(**self.model_dump(exclude={"otherwise"}))


class PointConfig(Strict):
    """One grid point.

    Args:
        dataset: that it reads.
        device: "cpu", "cuda" or "cuda:1".
        seed: of sampling, partitioning and initial weights.
        repetition: counts runs of the same configuration.
    """

    dataset: DataConfig
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    seed: int = 0
    repetition: NonNegativeInt = 0

    @field_validator("dataset", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


def _partition_method(name: str) -> str:
    from workbench.partition.batch import PARTITION_METHODS

    check_choice("method", name, ("auto", *PARTITION_METHODS))
    return name


def _model_kind(name: str) -> str:
    from workbench.nn.model import MODEL_KINDS

    check_choice("model", name, MODEL_KINDS)
    return name


PartitionMethod = Annotated[str, AfterValidator(_partition_method)]
"""A name that `partition_batch` takes."""

ModelKind = Annotated[str, AfterValidator(_model_kind)]
"""A name that `build_model` takes."""
