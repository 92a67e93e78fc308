"""phrasemodels/infra/slurm.sh starts a Ray cluster inside of a Slurm job.

Only the scheduler's commands are stand-ins: they start what they are given on this machine. Ray's head, its other node and the
run are real.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT

SCRIPT = PROJECT / "phrasemodels" / "infra" / "slurm.sh"
# As Slurm does, sbatch copies the script, runs it in the folder of the submission, and reads its options from both places.
STAND_INS = {
    "sbatch": """\
nodes=1 cpus=1
while [[ "$1" == --* ]]; do
    case "$1" in --nodes=*) nodes=${1#*=} ;; --cpus-per-task=*) cpus=${1#*=} ;; esac
    shift
done
grep --quiet '^#SBATCH --ntasks-per-node=1$' "$1"
cp "$1" "$SPOOL/job"
shift
echo $$ > "$SPOOL/id"
export SLURM_JOB_ID=$$ SLURM_JOB_NODELIST="node[1-$nodes]" SLURM_CPUS_PER_TASK=$cpus
exec bash "$SPOOL/job" "$@"
""",
    "scontrol": """\
[ "$1 $2" = "show hostnames" ]
last=${3#*-}
for number in $(seq 1 "${last%]}"); do echo "node$number"; done
""",
    "srun": """\
while [[ "$1" == --* ]]; do
    case "$1" in --nodelist=*) echo "${1#*=}" >> "$SPOOL/nodes" ;; esac
    shift
done
exec "$@"
""",
}


@pytest.fixture
def submit(tmp_path: Path):
    """Return a function that submits the script with options of Slurm and a command of phrasemodels."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\nset -eu\n{text}")
        (programs / name).chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PHRASEMODELS_", "RAY_"))}
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    python = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(options, command, **variables):
        environment = inherited | {"PATH": path, "PYTHONPATH": python, "SPOOL": str(tmp_path)} | variables
        job = subprocess.Popen(
            ["sbatch", *options, str(SCRIPT), *command], env=environment, cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            out, error = job.communicate(timeout=1500)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)  # all that the job has started
            raise
        return subprocess.CompletedProcess(job.args, job.returncode, out, error)

    return run


def test_what_cannot_work_is_refused_in_one_line(submit):
    outside = subprocess.run(["bash", SCRIPT, "reproduce"], capture_output=True, text=True)
    assert outside.returncode == 2 and "submit it with sbatch" in outside.stderr
    for command, store, said in (((), "file:///x", "no command"), (("reproduce",), "x", "2 nodes need a URL")):
        refused = submit(["--nodes=2"], command, PHRASEMODELS_STORE=store)
        assert refused.returncode == 2 and said in refused.stderr and refused.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_a_job_of_two_nodes_runs_a_table_on_a_ray_cluster_of_its_own(submit, tmp_path):
    small = (
        "train.steps=4",
        "train.evaluate_every=2",
        *(f"recipe.corpus.{part}=20" for part in ("train", "dev", "test")),
    )
    done = submit(
        ["--nodes=2", "--cpus-per-task=1", "--time=00:10:00"],
        ["reproduce", "--row", "phrase-k2", "--seeds", "1", *(f"--set={change}" for change in small)],
        PHRASEMODELS_STORE=(tmp_path / "shared").as_uri(),
        PHRASEMODELS_CACHE=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "nodes").read_text().split() == ["node1", "node2"]
    assert done.stdout.count("Ray runtime started.") == 2, "a head and a node"
    assert list((tmp_path / "cache").rglob("*.html")), "the report"
    assert list((tmp_path / "shared").rglob("*")), "artifacts are published"
    folder = Path(f"/tmp/phrasemodels-{(tmp_path / 'id').read_text().strip()}")
    assert not folder.exists(), "what Ray wrote on the nodes"
    assert subprocess.run(["pgrep", "-f", str(folder)], capture_output=True).returncode == 1, "no process is left"
