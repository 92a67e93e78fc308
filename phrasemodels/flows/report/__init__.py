"""Reports: the page of a table, the page of all papers, plots, and figures of attention and of problems."""
