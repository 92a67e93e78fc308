"""Training: the loop, its configuration, optimisers, batches, checkpoints."""
