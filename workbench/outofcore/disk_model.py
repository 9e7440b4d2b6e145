"""`DiskModel`: modelled seconds of reads and writes of a disk, from its bandwidth and its reads per second."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DiskModel:
    """A disk whose every operation takes a fixed time, and every byte another.

    Args:
        bytes_per_second: bandwidth of long reads and writes.
        reads_per_second: small random reads or writes per second.

    Raises:
        ValueError: a number that is not positive.

    >>> disk = DiskModel(bytes_per_second=1e9, reads_per_second=10_000)
    >>> disk.read_bytes, disk.seconds(2_000_000_000, 5_000)
    (100000, 2.5)
    """

    bytes_per_second: float
    reads_per_second: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value!r}; it must be positive and finite")

    @property
    def read_bytes(self) -> int:
        """Size of a read that takes as long to find as to transfer: shorter ones waste the disk's time."""
        return max(1, round(self.bytes_per_second / self.reads_per_second))

    def seconds(self, num_bytes: float, num_reads: float) -> float:
        """Modelled seconds of reads or writes one after the other.

        Args:
            num_bytes: their total size.
            num_reads: their number.
        """
        return num_bytes / self.bytes_per_second + num_reads / self.reads_per_second
