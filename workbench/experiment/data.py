"""The data sets of a sweep: found before work starts, loaded when their fingerprint is needed."""

from functools import cache

from workbench.experiment.config import DataConfig, PointConfig
from workbench.experiment.problems import ConfigError
from workbench.tracking.record import DatasetInfo


def alternatives(config: PointConfig) -> list[PointConfig]:
    """The configuration with its data set, and with each that may stand in for it."""
    choice, found = config.dataset, []
    while choice is not None:
        found.append(config.model_copy(update={"dataset": choice.model_copy(update={"otherwise": None})}))
        choice = choice.otherwise
    return found


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
    for either in alternatives(config):
        dataset = either.dataset
        try:
            find_source(dataset.name, data_folder(), scale=dataset.scale, seed=dataset.seed)
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
        else:
            return either
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
