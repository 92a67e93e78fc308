"""Problems, one folder each: its data, loss, predictions, scores, recipe of steps, and sections of a report."""
