"""One file per kind of board. Nothing is opened before a rank first publishes or reads."""
