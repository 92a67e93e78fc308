"""Problems. Each has its data, loss, predictions, scores, recipe of steps, and sections of a report."""
