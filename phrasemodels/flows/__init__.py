"""Flows: the experiments, their plans and execution, results, reports, and the command line."""
