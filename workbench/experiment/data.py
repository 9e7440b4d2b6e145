"""The data sets of a sweep: found before work starts, loaded when their fingerprint is needed."""

from functools import cache

from workbench.experiment.config import DataConfig, PointConfig
from workbench.experiment.problems import ConfigError
from workbench.tracking.record import DatasetInfo


def at_hand(config: PointConfig, where: str) -> PointConfig:
    """The configuration with a data set that can be loaded here: its own, else the one it names otherwise.

    Args:
        config: of a point.
        where: file it comes from, for messages.

    Raises:
        ConfigError: neither is at hand; says what would get them.
    """
    from workbench.datasets.folders import data_folder
    from workbench.datasets.load import find_source

    problems = []
    choice: DataConfig | None = config.dataset
    while choice is not None:
        try:
            find_source(choice.name, data_folder(), scale=choice.scale, seed=choice.seed)
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
        else:
            return config.model_copy(update={"dataset": choice.model_copy(update={"otherwise": None})})
        choice = choice.otherwise
    raise ConfigError(f"{where}: dataset.name: {'; '.join(problems)} (or --set dataset=NAME, of: {_names()})")


@cache
def describe_dataset(config: DataConfig) -> DatasetInfo:
    """What a run says about its data set."""
    from workbench.datasets.folders import data_folder
    from workbench.datasets.load import find_source

    data = config.load()
    kind = find_source(config.name, data_folder(), scale=config.scale, seed=config.seed).kind
    return DatasetInfo(config.name, data.fingerprint, kind, data.graph.num_nodes, data.graph.num_edges)


def _names() -> str:
    from workbench.datasets.describe import listed
    from workbench.datasets.folders import data_folder

    return ", ".join(row.name for row in listed(data_folder()) if row.here)
