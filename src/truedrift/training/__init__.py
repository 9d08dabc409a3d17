"""Run an optimization that can be killed anywhere: checkpoints, their retention, the run's lock and its metrics."""
