"""The records that travel (graph, mini-batch), their checks, randomness, the memory meter and exchange with other libraries."""
