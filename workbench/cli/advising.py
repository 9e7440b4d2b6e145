"""The work of `workbench advise`: advice on a data set and a model given by options, and its program."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch

import workbench as wb
from workbench.advisor.machine import HERE, resolve_machine
from workbench.advisor.text import advice_text
from workbench.cli.keywords import call_text, check_features, data_keywords, fanouts_of, model_keywords
from workbench.core.errors import check_at_least, check_bytes
from workbench.files import write_file
from workbench.links.knowledge_graph import KnowledgeGraph


class Advised(NamedTuple):
    """Advice, and the expressions that make its data set and its model.

    Args:
        advice: the advice.
        data: of the data set.
        model: of the model.
    """

    advice: wb.advisor.Advice
    data: str
    model: str


def advise_on(asked: SimpleNamespace, report: Callable[[str], object]) -> Advised:
    """Loads the data set, builds the model and prices the configurations.

    Args:
        asked: the options of `workbench advise` by name.
        report: called with what is being done, one line each.

    Raises:
        ValueError: invalid options (checked before the data set is loaded), a data set without features, classes or
            training nodes, or rgcn on a graph without edge types.
        OSError: the machine's file, or the data set, can't be read.
        CapacityError: parameters and gradients alone exceed the memory.
    """
    sampler = wb.NeighborSampler(fanouts_of(asked.fanouts), seed=asked.seed)
    budgets = {name: getattr(asked, name) for name in ("memory", "host_memory") if getattr(asked, name) is not None}
    for name, value in budgets.items():
        check_bytes(name.replace("_", "-"), value)
    check_at_least("batch-size", asked.batch_size, 1)
    check_at_least("devices", asked.devices, 1)
    check_at_least("batches", asked.batches, 2)
    if asked.machine == HERE:
        report("measuring this machine")
    machine = resolve_machine(asked.machine)
    report(f"loading {asked.dataset}")
    keywords = data_keywords(asked)
    data = wb.load_dataset(asked.dataset, **keywords)
    _check(data, asked.dataset)
    widths = {"in_dim": data.num_features, "hidden_dim": asked.hidden, "out_dim": data.num_classes}
    options = {**widths, "num_layers": len(sampler.fanouts), **model_keywords(asked, data.graph)}
    advice = wb.advise(
        data,
        wb.build_model(asked.model, **options),
        machine=machine,
        sampler=sampler,
        batch_size=asked.batch_size,
        devices=asked.devices,
        optimizer=asked.optimizer,
        num_batches=asked.batches,
        seed=asked.seed,
        report=report,
        **budgets,
    )
    expressions = (
        call_text("wb.load_dataset", asked.dataset, keywords),
        call_text("wb.build_model", asked.model, options),
    )
    return Advised(advice, *expressions)


def _check(data: wb.Dataset | KnowledgeGraph, name: str) -> None:
    if isinstance(data, KnowledgeGraph):
        raise ValueError(
            f"{name} is a knowledge graph, which has no labels of nodes; `workbench plan` plans its batches"
        )
    check_features(data)
    if data.x.dtype != torch.float32:
        raise ValueError(
            f"{name} has features of {data.x.dtype}, but the model's parameters are torch.float32; pass --features "
            "degree, or random:WIDTH such as random:128, or call wb.advise with a model of that type"
        )
    if not data.num_classes:
        raise ValueError(f"{name} has no classes to train on; choose a set with labels from `workbench data list`")


def table_and_sentences(advice: wb.advisor.Advice, all_rows: bool) -> list[str]:
    """Lines to print.

    Args:
        advice: the advice.
        all_rows: show all configurations, not the first dozen.
    """
    rows = {"rows": len(advice.priced)} if all_rows else {}
    return advice_text(advice, **rows, more="--all shows them").splitlines()


def check_folder(file: Path) -> None:
    """Checks that a file can be written before any work is done.

    Args:
        file: that will be written.

    Raises:
        ValueError: its folder does not exist.
    """
    if not file.absolute().parent.is_dir():
        raise ValueError(f"code is {file}, but there is no folder {file.parent}; create it, or choose another file")


def save_program(advised: Advised, file: Path) -> None:
    """Writes the program of the best configuration.

    Args:
        advised: the advice and its expressions.
        file: to create or replace.

    Raises:
        CapacityError: no configuration fits.
        OSError: the file can't be written.
    """
    write_file(file, advised.advice.code(data=advised.data, model=advised.model))
