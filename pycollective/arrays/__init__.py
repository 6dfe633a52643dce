"""Array libraries, one file for each. `libraries` lists them."""
