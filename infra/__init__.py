"""Settings, services and trackers: where and on what things run."""
