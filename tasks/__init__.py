"""The steps: plain functions from files to files, which do not know where they run."""
