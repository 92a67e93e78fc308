"""Problems, one folder each: its data, its loss, its predictions, its scores, its recipe of steps."""
