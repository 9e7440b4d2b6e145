"""What every grid point is told: its data set, device and seed; and its model. Experiments add their own fields."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, field_validator, model_validator

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
    from workbench.partition.batch import PARTITION_CHOICES

    check_choice("method", name, PARTITION_CHOICES)
    return name


def _model_kind(name: str) -> str:
    from workbench.nn.model import MODEL_KINDS

    check_choice("model", name, MODEL_KINDS)
    return name


PartitionMethod = Annotated[str, AfterValidator(_partition_method)]
"""A name that `partition_batch` takes."""

ModelKind = Annotated[str, AfterValidator(_model_kind)]
"""A name that `build_model` takes."""


class ModelConfig(PointConfig):
    """A grid point that trains a model.

    Args:
        model: kind of layer.
        fanouts: neighbours that are sampled in each layer, input layer first; as many as the model has layers.
        hidden_dim: total width of hidden layers.
        heads: of gat.
        dropout: probability of dropping a hidden value.
    """

    model: ModelKind
    fanouts: tuple[int, ...] = Field(min_length=1)
    hidden_dim: PositiveInt
    heads: PositiveInt = 1
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _heads_are_for_attention(self) -> Self:
        if self.heads > 1 and self.model != "gat":
            raise ValueError(f"heads is {self.heads}, but {self.model} has none; leave it out or set model to gat")
        return self

    def build(self, data: Any) -> Any:
        """The model, from features to classes, its weights drawn by the point's seed, on the point's device.

        Args:
            data: a `Dataset`, for its widths.
        """
        from workbench.nn.model import build_model

        model = build_model(
            self.model,
            in_dim=data.num_features,
            hidden_dim=self.hidden_dim,
            out_dim=data.num_classes,
            num_layers=len(self.fanouts),
            dropout=self.dropout,
            heads=self.heads,
            seed=self.seed,
        )
        return model.to(self.device)
