"""What runs when: experiments, plans, execution, results, reports, and the command line."""
