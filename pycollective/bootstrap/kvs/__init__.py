"""One file for each kind of launcher's key-value space (KVS). It is opened at its first use."""
