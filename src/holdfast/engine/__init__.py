"""The shell around the core: awaits things and records what happened."""
