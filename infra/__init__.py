"""Settings, services (Prefect, Ray, MLflow) and the files that deploy them."""
