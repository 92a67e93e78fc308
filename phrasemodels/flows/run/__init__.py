"""Running a table: its plan, its execution on Ray, its record in MLflow, and the Prefect flows."""
