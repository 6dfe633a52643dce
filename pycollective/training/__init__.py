"""What programs that train ask for beside collectives: gradients, seeds, one rank's work, printing, remote calls."""
