"""`workbench plan`, `buffer`, `advise`, `machine`: what fits into a memory, which ideas help, and on which machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from workbench.cli.command_group import write_error, write_lines
from workbench.cli.options import LSTMS, PARTITIONERS, STRATEGIES, NameChoice, data_options, model_options


@click.command()
@click.option("--dataset", required=True, metavar="NAME", help="Data set; `workbench data list` names them.")
@data_options
@model_options
@click.option("--layers", type=int, show_default="one per fanout", help="Number of layers.")
@click.option(
    "--classes",
    type=int,
    show_default="the set's classes",
    help="Output channels; of a knowledge graph by default the hidden ones.",
)
@click.option("--fanouts", required=True, metavar="A,B,...", help="Fanouts, input layer first; -1: all neighbours.")
@click.option("--batch-size", type=int, show_default="all", help="Number of training nodes, drawn at random.")
@click.option(
    "--memory", "--capacity", "capacity", required=True, metavar="SIZE", help="Memory of the device, such as 8GiB."
)
@click.option("--margin", default=0.02, help="Fraction by which estimates may be too low.")
@click.option(
    "--method",
    default="auto",
    type=NameChoice(("auto", "fast", *PARTITIONERS, "all")),
    help=f"Batch partitioner: auto, fast, {', '.join(PARTITIONERS)}; or all: compare those that take seconds.",
)
@click.option(
    "--strategy",
    default="even",
    type=NameChoice(STRATEGIES),
    help="even: partition anew for every number of parts; split: cut only the parts that overflow.",
)
@click.option("--seed", default=0, help="Seed of the data set, the batch, its sample and the partitions.")
@click.option(
    "--device",
    type=NameChoice(("cpu", "cuda")),
    show_default="cuda if available",
    help="Device to estimate for; estimating for cuda needs no GPU.",
)
@click.option("--lstm", type=NameChoice(LSTMS), show_default="as torch here", help="LSTM of sage-lstm to price.")
def plan(**options: Any) -> None:
    """Predict how many micro-batches fit into a memory capacity.

    Shows the peak memory by term, the redundancy and the cost of partitioning; trains nothing.
    """
    from workbench.cli.plans import plan_batch

    write_lines(plan_batch(SimpleNamespace(**options)))


@click.command()
@click.option("--nodes", required=True, type=int, help="Number of nodes.")
@click.option("--row", required=True, metavar="SIZE", help="Bytes of a node's row, such as 512B: 128 float32 values.")
@click.option("--edges", required=True, type=int, help="Number of edges.")
@click.option("--edge", default="16B", metavar="SIZE", help="Bytes of an edge on disk; 24B with a relation.")
@click.option("--memory", required=True, metavar="SIZE", help="Memory available, such as 16GiB.")
@click.option(
    "--working", default="0B", metavar="SIZE", help="Memory beside the buffer; `workbench plan` estimates a step's."
)
@click.option("--bandwidth", default="1GB", metavar="SIZE", help="Bytes that the disk reads per second.")
@click.option("--disk-reads", default=16_000, help="Small random reads of the disk per second.")
@click.option("--learnt", is_flag=True, help="Rows are learnt: optimizer state beside them, partitions written back.")
@click.option(
    "--state",
    metavar="SIZE",
    help="Bytes of a learnt row's optimizer state: default as the row; twice for half precision.",
)
@click.option("--method", default="COMET", type=click.Choice(("COMET", "balanced")), help="Order of edge buckets.")
@click.option("--max-partitions", default=1024, help="Upper bound of the number of partitions.")
@click.option("--prefetch/--no-prefetch", default=True, help="Count what the buffer reads ahead for its next state.")
def buffer(**options: Any) -> None:
    """Size the partition buffer of training from disk.

    Chooses partitions, capacity and logical groups for link prediction, and shows the bytes that an epoch reads and
    writes and their modelled time; reads nothing itself.
    """
    from workbench.cli.plans import describe_buffer

    write_lines(describe_buffer(options))


@click.command()
@click.argument("dataset")
@data_options
@model_options
@click.option("--fanouts", default="10,10", metavar="A,B,...", help="Fanouts, input layer first; -1: all neighbours.")
@click.option("--batch-size", default=1024, help="Training nodes per batch and device.")
@click.option(
    "--machine",
    default="here",
    metavar="NAME|FILE",
    show_default="this one, measured",
    help='A100, H100, V100, L4, "RTX 4090" or a YAML file; `workbench machine` shows them.',
)
@click.option("--memory", metavar="SIZE", show_default="the machine's", help="Memory of a device, such as 8GiB.")
@click.option("--host-memory", metavar="SIZE", show_default="the machine's", help="Memory of the host for the data.")
@click.option("--devices", "--gpus", default=1, help="Number of devices.")
@click.option("--batches", default=24, help="Batches to sample of every way of sampling.")
@click.option("--seed", default=0, help="Seed of the data set, the order of batches and the partitions.")
@click.option(
    "--code", metavar="FILE", type=click.Path(path_type=Path), help="Write the program of the best configuration."
)
@click.option("--all", "all_rows", is_flag=True, help="Show all configurations.")
def advise(code: Path | None, all_rows: bool, **options: Any) -> None:
    """Say which ideas help a graph, a model and a machine.

    Samples some batches of DATASET (`workbench data list` names them) and prices every configuration from counts:
    memory, bytes moved and seconds per epoch, best first, and why the other ideas do not help. Nothing is trained.
    """
    from workbench.cli.plans import advise_on, check_folder, save_program, table_and_sentences

    if code is not None:
        check_folder(code)
    advised = advise_on(SimpleNamespace(**options), report=write_error)
    write_lines(table_and_sentences(advised.advice, all_rows))
    _ = advised.advice.best  # an error if nothing fits
    if code is not None:
        save_program(advised, code)
        write_lines(["", f"the program of the best configuration is in {code}"])


@click.command()
@click.argument("machine", metavar="[NAME|FILE]", default="here")
@click.option("--folder", metavar="FOLDER", show_default="the cache", help="Folder on the disk to measure.")
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path), help="YAML file to write the machine to.")
def machine(machine: str, folder: str | None, save: Path | None) -> None:
    """Show the speeds of a machine and how each was found.

    Measures this machine in some seconds, unless a known one (A100, H100, V100, L4, "RTX 4090") or a YAML file is
    given.
    """
    import pandas as pd

    import workbench as wb
    from workbench.advisor.machine import HERE, resolve_machine
    from workbench.report.terminal import fitted_table, terminal_width

    if folder is not None and machine != HERE:
        raise ValueError(f"--folder is {folder!r}, but {machine} is not measured; leave out either of both")
    found = resolve_machine(machine) if folder is None else wb.Machine.here(folder)
    if save is not None:
        found.save(save)
    table = pd.DataFrame(found.rows()).drop(columns="field").rename(columns={"source": "how it was found"})
    saved = [] if save is None else ["", f"saved in {save}"]
    write_lines([found.name or "a machine without a name", "", *fitted_table(table, terminal_width()), *saved])
