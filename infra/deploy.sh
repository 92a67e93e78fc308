#!/bin/sh
# Make the work pool with these options and the deployments of prefect.yaml as they are there, whatever was changed on the
# server meanwhile, and the automation if there is none.
set -eu
prefect --no-prompt work-pool create phrasemodels --overwrite "$@"
prefect --no-prompt deploy --all
prefect automation inspect 'Runs without a heartbeat crash' > /dev/null 2>&1 ||
    prefect --no-prompt automation create --from-file infra/zombies.json
