from .access_probability import inclusion_probability as inclusion_probability
from .locality import (
    LocalityControl as LocalityControl,
    LocalitySampler as LocalitySampler,
    locality_factors as locality_factors,
)
from .place import PLACEMENT_METHODS as PLACEMENT_METHODS, place_rows as place_rows
from .placed_rows import PlacedRows as PlacedRows
from .placement import Placement as Placement, RowLookup as RowLookup
