"""Configuration of a grid point: data set, device, seed and model; experiments add their own fields."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, model_validator

from workbench.core.errors import check_choice
from workbench.experiment.figure_spec import Strict


class DataConfig(Strict):
    """Arguments of `workbench.load_dataset`; in YAML, a plain name is the data set as published.

    Args:
        name: of the data set.
        undirected: add the reverse of each edge, and merge duplicates unless it is "multi"; None: as published.
        self_loops: add (True) or remove (False) self-loops; None: as published.
        features: input features of nodes: "given", "random:128" or "degree".
        split: number of the public split, where there are several.
        scale: size of a stand-in relative to the published graph, above 0 and at most 1.
        seed: of a stand-in, of random features and of a split.
        otherwise: data set to use if this one is not available.
    """

    name: str
    undirected: bool | Literal["multi"] | None = None
    self_loops: bool | None = None
    features: str = "given"
    split: NonNegativeInt = 0
    scale: float | None = Field(default=None, gt=0, le=1)
    seed: int = 0
    otherwise: "DataConfig | None" = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    def load(self) -> Any:
        """Load the data set, a `Dataset` or a `KnowledgeGraph`."""
        from workbench.datasets.load import load_dataset

        return load_dataset(**self.model_dump(exclude={"otherwise"}))


def known_device(name: str) -> str:
    """Return the name of a device after checking that torch knows it."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ValueError(f"device {name!r} is not known; choose cpu, cuda or cuda:N, such as cuda:1")
    return name


Device = Annotated[str, AfterValidator(known_device)]
"""A device that torch names."""


class PointConfig(Strict):
    """One grid point. Points that read a data set extend `DataPointConfig`; orders, laws and cost models need none.

    Args:
        device: "cpu", "cuda" or "cuda:1".
        seed: of sampling, partitioning and initial weights.
        repetition: number of this run among runs of the same configuration.
    """

    device: Device = "cpu"
    seed: int = 0
    repetition: NonNegativeInt = 0


class DataPointConfig(PointConfig):
    """A grid point that reads a data set.

    Args:
        dataset: to load: nodes with features, or a knowledge graph.
    """

    dataset: DataConfig


def dataset_of(config: PointConfig) -> DataConfig | None:
    """The data set of a point; None if it reads none."""
    return getattr(config, "dataset", None)


def _partition_method(name: str) -> str:
    from workbench.partition.batch import partition_choices

    check_choice("method", name, partition_choices())
    return name


def _model_kind(name: str) -> str:
    from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS

    check_choice("model", name, (*MODEL_KINDS, *TYPED_MODEL_KINDS))
    return name


PartitionMethod = Annotated[str, AfterValidator(_partition_method)]
"""A method of `partition_batch`."""

ModelKind = Annotated[str, AfterValidator(_model_kind)]
"""A kind of model of `build_model`."""


class ModelConfig(DataPointConfig):
    """A grid point that trains a model.

    Args:
        model: kind of layer; rgcn needs a data set with edge types.
        fanouts: sampled neighbours per layer, input layer first; their number is the model's number of layers.
        hidden_dim: total width of hidden layers.
        heads: attention heads of gat; 1 for other models.
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
            raise ValueError(
                f"heads is {self.heads}, but {self.model} has no attention heads; leave it out or set model to gat"
            )
        return self

    def build(self, data: Any) -> Any:
        """Build the model on the point's device, its initial weights drawn from the point's seed.

        Args:
            data: `Dataset` whose numbers of features and classes are the model's input and output widths.
        """
        from workbench.nn.model import build_model, relation_options

        relations: dict[str, Any] = relation_options(self.model, data.graph)
        model = build_model(
            self.model,
            in_dim=data.num_features,
            hidden_dim=self.hidden_dim,
            out_dim=data.num_classes,
            num_layers=len(self.fanouts),
            dropout=self.dropout,
            heads=self.heads,
            seed=self.seed,
            **relations,
        )
        return model.to(self.device)
