"""The ranks' output as bytes, lines and rows, before it is shown."""
