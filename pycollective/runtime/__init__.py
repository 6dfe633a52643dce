"""The world of this process: its start and end, groups, store, devices and facts."""
