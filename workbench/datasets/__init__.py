"""Data by name: archives, OGB folders and stand-ins, checked once and then opened memory-mapped."""
