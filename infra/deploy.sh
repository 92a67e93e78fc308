#!/bin/sh
# Make the work pool with these options, deploy prefect.yaml into it, and make the automation, each if it is not there.
set -eu
prefect --no-prompt work-pool create phrasemodels --overwrite "$@"
prefect --no-prompt deploy --all
prefect automation inspect 'Runs without a heartbeat crash' > /dev/null 2>&1 ||
    prefect --no-prompt automation create --from-file infra/zombies.json
