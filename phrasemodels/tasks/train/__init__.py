"""Training: configuration, optimisers and schedules, batches, the loop, checkpoints."""
