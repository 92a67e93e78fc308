"""Settings and services: Prefect, Ray, MLflow, and the files that deploy them."""
