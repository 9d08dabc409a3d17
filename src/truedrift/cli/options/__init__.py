"""The options of every command. These modules import neither torch nor the work, so that `--help` is fast."""
