"""Records that travel, their checks, randomness, the memory meter and exchange with other libraries."""
