"""Starting ranks (`pycollective run`) and finding out which rank this process is (`detect`)."""
