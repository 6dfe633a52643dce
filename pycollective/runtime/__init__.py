"""The world of this process: its beginning and end, its groups, its store, its devices, what is known of it."""
