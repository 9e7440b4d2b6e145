"""Data sets by name: archives, OGB folders and stand-ins, validated once and then opened memory-mapped."""
