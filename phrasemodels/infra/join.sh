#!/bin/sh
# Run a command. With RAY_HEAD=host:port, first join that Ray cluster with a node without processors, so that the flow runs
# in this container and its work on other nodes. If the command or the node ends, so does the other: without the node no
# run could start, and a restart of the container joins the new cluster.
set -eu
[ -n "${RAY_HEAD:-}" ] || exec "$@"
ray start --address="$RAY_HEAD" --num-cpus=0 --num-gpus=0 --object-store-memory=1000000000 --disable-usage-stats --block &
node=$!
trap 'kill "$node" 2> /dev/null || true' EXIT
trap 'kill "$command"' TERM INT
until python -c 'import ray; ray.init(address="auto", logging_level="ERROR")' 2> /dev/null; do
    kill -0 "$node" || { echo "join.sh: Ray did not join $RAY_HEAD" >&2; exit 1; }
    sleep 1
done
"$@" &
command=$!
(
    while kill -0 "$node" 2> /dev/null; do sleep 2; done
    kill "$command" 2> /dev/null && echo "join.sh: the Ray node ended" >&2
    sleep 10
    kill -9 "$command" 2> /dev/null # Prefect's worker goes on after its first signal
) &
status=0
wait "$command" || status=$?
wait "$command" 2> /dev/null || true # after a signal: wait until the command has ended
exit "$status"
