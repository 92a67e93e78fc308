"""Infrastructure: settings, signals, services of a run (Prefect, Ray, MLflow) and deployment files."""
