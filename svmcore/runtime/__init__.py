"""What every part stands on: compilation, threads, the stop by Ctrl-C, plug-ins by name."""
