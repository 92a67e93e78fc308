#!/bin/bash
# Run a command of phrasemodels on the nodes of a Slurm job: a Ray head on the first node, a Ray node on each other one.
#
#   sbatch --nodes=4 --cpus-per-task=16 --time=08:00:00 phrasemodels/infra/slurm.sh reproduce --paper 000 --table 1 --profile paper
#
# Submit it where `phrasemodels` is in PATH, from a folder that all nodes see. With several nodes, PHRASEMODELS_STORE must be a
# URL (file:///shared/folder, s3://bucket/prefix), and PHRASEMODELS_CACHE a folder on each node's own disk.
# HEAD_ADDRESS: the first node's address, if the nodes do not reach each other by its first one.
#SBATCH --job-name=phrasemodels
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:TERM@120
set -euo pipefail

refuse() { echo "slurm.sh: $1" >&2; exit 2; }
[ -n "${SLURM_JOB_NODELIST:-}" ] || refuse "not in a Slurm job: submit it with sbatch phrasemodels/infra/slurm.sh COMMAND"
[ $# -gt 0 ] || refuse "no command: add one of phrasemodels, such as reproduce"
command -v phrasemodels > /dev/null || refuse "phrasemodels is not in PATH: activate its environment, then submit again"
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
[ "${#nodes[@]}" = 1 ] || [[ "${PHRASEMODELS_STORE:-}" == *://* ]] \
    || refuse "PHRASEMODELS_STORE=${PHRASEMODELS_STORE:-}: ${#nodes[@]} nodes need a URL, such as file:///shared/folder"

# Only processes with the token may use the cluster; jobs of others on these nodes have other ports and folders.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1 # hide GPUs from tasks that asked for none
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
address=${HEAD_ADDRESS:-$(hostname --all-ip-addresses | cut -d' ' -f1)}
port=$((20000 + 2 * (SLURM_JOB_ID % 10000)))
folder=/tmp/phrasemodels-$SLURM_JOB_ID
cpus=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}
steps=()

# Ray gives a node 30 seconds to start, which a busy disk that all nodes share exceeds: it is tried three times.
START='trap "kill \$ray; wait \$ray; exit 143" TERM
for try in 1 2 3; do ray start "$@" --disable-usage-stats --block & ray=$!; wait $ray && exit; done; exit 1'
on_node() { # a node, and a Ray node's options: start it as a step of the job, in the background
    srun --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --nodelist="$1" bash -c "$START" ray "${@:2}" --num-cpus="$cpus" &
    steps+=($!)
}
joined() { # how many nodes: wait until they have; counted in a process of its own, which leaves the cluster again
    until python -c "import ray; ray.init('$address:$port', logging_level='ERROR', log_to_driver=False)
raise SystemExit(sum(node['Alive'] for node in ray.nodes()) < $1)" 2> /dev/null; do
        for step in "${steps[@]}"; do
            kill -0 "$step" 2> /dev/null || {
                echo "slurm.sh: a Ray node ended: see above; do all nodes reach $address:$port?" >&2
                exit 1
            }
        done
        sleep 2
    done
}
ended() {
    kill "${steps[@]}" 2> /dev/null || true
    wait "${steps[@]}" 2> /dev/null || true
    srun --nodes="${#nodes[@]}" --ntasks="${#nodes[@]}" rm -rf "$folder" || true
}
trap ended EXIT
trap 'exit 143' TERM

on_node "${nodes[0]}" --head --node-ip-address="$address" --port="$port" --ray-client-server-port="$((port + 1))" \
    --temp-dir="$folder" --include-dashboard=false
joined 1
for node in "${nodes[@]:1}"; do on_node "$node" --address="$address:$port"; done
joined "${#nodes[@]}"

export PHRASEMODELS_RAY_ADDRESS=$address:$port PHRASEMODELS_CLUSTER
PHRASEMODELS_CLUSTER=$([ "${#nodes[@]}" = 1 ] && echo false || echo true)
phrasemodels "$@" &
run=$!
trap 'kill -TERM "$run"' TERM # before the time limit: what is finished is kept, and the same command goes on
status=0
wait "$run" || status=$?
wait "$run" 2> /dev/null || true # after a signal: until the command has ended
exit "$status"
