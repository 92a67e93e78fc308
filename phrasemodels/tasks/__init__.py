"""The steps of the pipeline: functions from artifacts to artifacts that do not know where they run."""
