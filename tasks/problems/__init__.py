"""What models are trained for: one file a problem, with its loss and the steps that answer and score."""
