"""Key-value spaces (KVS), one module for each kind of launcher. Each is opened at its first use."""
