"""The data set of a point: located before any work, loaded once for its fingerprint."""

from functools import cache
from pathlib import Path
from typing import Any

from workbench.core.yaml_file import ConfigError
from workbench.experiment.config import DataConfig, PointConfig, dataset_of
from workbench.files import FileStamp
from workbench.tracking.record import DatasetInfo


def alternatives(config: PointConfig) -> list[PointConfig]:
    """The configuration with its data set, then with each data set that may replace it."""
    choice, found = dataset_of(config), []
    if choice is None:
        return [config]
    while choice is not None:
        found.append(config.model_copy(update={"dataset": choice.model_copy(update={"otherwise": None})}))
        choice = choice.otherwise
    return found


def at_hand(config: PointConfig, where: str) -> PointConfig:
    """The configuration with the first of its data sets that is available here.

    Args:
        where: file that the configuration comes from, for messages.

    Raises:
        ConfigError: none is available; the message says how to get them.
    """
    from workbench.datasets.load import find_source
    from workbench.paths import data_folder

    problems = []
    for either in alternatives(config):
        dataset = dataset_of(either)
        if dataset is None:
            return either
        try:
            find_source(dataset.name, data_folder(), scale=dataset.scale, seed=dataset.seed)
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
        else:
            return either
    told = "or --set dataset=NAME with one that `workbench data list` shows as available"
    raise ConfigError(f"{where}: dataset.name: {'; '.join(problems)}; {told}")


def stamps(config: DataConfig | None) -> tuple[tuple[Path, FileStamp], ...]:
    """Paths and stamps of the files of a data set, which tell whether it was replaced since it was described."""
    if config is None:
        return ()
    from workbench.datasets.load import find_source
    from workbench.paths import data_folder

    source = find_source(config.name, data_folder(), scale=config.scale, seed=config.seed)
    return tuple((file, FileStamp.of(file)) for file in source.files)


@cache
def describe_dataset(config: DataConfig | None, files: tuple[tuple[Path, FileStamp], ...] = ()) -> DatasetInfo | None:
    """Name, fingerprint, source and size of a data set, as a run records them; None for a point without one.

    Args:
        files: its `stamps`: a data set whose files were replaced is described anew.
    """
    if config is None:
        return None
    from workbench.datasets.load import find_source
    from workbench.paths import data_folder

    data = config.load()
    kind = find_source(config.name, data_folder(), scale=config.scale, seed=config.seed).kind
    return DatasetInfo(config.name, data.fingerprint, kind, *_size(data))


def _size(data: Any) -> tuple[int, int]:
    """Nodes and edges of the graph; of a knowledge graph, its entities and training triples."""
    from workbench.links.knowledge_graph import KnowledgeGraph

    if isinstance(data, KnowledgeGraph):
        return data.num_entities, len(data.train)
    return data.graph.num_nodes, data.graph.num_edges
