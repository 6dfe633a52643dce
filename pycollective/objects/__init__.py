"""Python objects between ranks: their bytes, and the collectives and messages that carry them."""
