from .access_probability import inclusion_probability as inclusion_probability
from .locality import (
    LocalityControl as LocalityControl,
    LocalitySampler as LocalitySampler,
    locality_factors as locality_factors,
)
from .placed_rows import PlacedRows as PlacedRows
from .placement import (
    PLACEMENT_METHODS as PLACEMENT_METHODS,
    Placement as Placement,
    RowLookup as RowLookup,
    place_rows as place_rows,
)
