from .epoch_passes import EpochPass as EpochPass, EpochPasses as EpochPasses, measure_epoch as measure_epoch
from .stopwatch import ThreadStopwatch as ThreadStopwatch, timed as timed
