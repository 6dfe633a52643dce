"""Array libraries, one file each. `libraries` has the table of them."""
