"""Reports: pages of a table and of all papers, plots, figures of attention."""
