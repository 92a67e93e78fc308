"""Infrastructure: settings, the services of a run (Prefect, Ray, MLflow), signals, and the files that deploy them."""
