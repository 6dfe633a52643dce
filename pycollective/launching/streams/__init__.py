"""What ranks write, as bytes, lines and rows, before anything is shown."""
