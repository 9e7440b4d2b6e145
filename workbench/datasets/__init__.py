"""Data sets by name: archives, OGB folders and stand-ins, validated once and then opened memory-mapped.

A catalog of the known sets, the readers of each layout, a cache of validated arrays, and the downloads of
`workbench data get`; nothing else uses a network.
"""
