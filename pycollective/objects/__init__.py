"""Python objects between ranks: their encoding, and the collectives and messages that send them."""
