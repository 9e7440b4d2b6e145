"""Ranks: processes that run one function together over `torch.distributed`."""
