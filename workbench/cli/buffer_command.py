"""`workbench buffer`: settings of a partition buffer for training from disk."""

from typing import Any

import click

from workbench.cli.command_group import write_lines


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
def buffer(**options: Any) -> None:
    """Size the partition buffer of training from disk.

    Chooses partitions, capacity and logical groups for link prediction, and shows the bytes that an epoch reads and
    writes and their modelled time; reads nothing itself.
    """
    from workbench.cli.buffer_text import describe_buffer

    write_lines(describe_buffer(options))
