"""What a model is trained for: batches, loss, decoding and scores of one problem."""
