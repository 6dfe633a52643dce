"""One file per kind of launcher's key-value space (KVS). Nothing is opened before a rank first publishes or reads."""
