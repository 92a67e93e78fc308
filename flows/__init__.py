"""What runs when: the Prefect flows, the experiments, the command line."""
