"""Functions for training programs: gradients, seeds, one rank's work, printing, remote calls."""
