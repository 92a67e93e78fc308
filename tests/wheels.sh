#!/usr/bin/env bash
# The wheel of this commit as users install it, in two environments with nothing of the checkout on the path.
#   tests/wheels.sh light    the library: torch, numpy, numba and safetensors, installed from the index; then the extra `parse`
#   tests/wheels.sh full     the pipeline: the packages are those of .venv, the wheel is installed beside them
# PYTHON=python3.14 tests/wheels.sh light    with another Python, and the newest versions of these packages
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 OMP_NUM_THREADS=1
python=${PYTHON:-$checkout/.venv/bin/python}
pins=()
[ -n "${PYTHON:-}" ] || pins=(--constraint "$checkout/constraints.txt")

git clone --quiet "$checkout" "$folder/source" # so that nothing which git does not know gets into the wheel
# the wheel is built from the source distribution, as users of one do; both are checked as an index would
"$python" -m venv "$folder/tools"
"$folder/tools/bin/pip" install --quiet build twine
"$folder/tools/bin/python" -m build --outdir "$folder" "$folder/source" > "$folder/build.log" || { cat "$folder/build.log"; exit 1; }
"$folder/tools/bin/twine" check --strict "$folder"/phrasemodels-*
rm -rf "$folder/source" "$folder/tools"
wheel=$(echo "$folder"/phrasemodels-*.whl)
"$python" -m venv "$folder/venv"
mkdir -p "$folder/here/data" # a folder `data` beside a user's script hides nothing
cd "$folder/here"

light() {
    "$folder/venv/bin/pip" install --quiet ${pins[@]+"${pins[@]}"} "$wheel"
    "$folder/venv/bin/python" - <<'PYTHON'
import sys

import phrasemodels

assert "torch" not in sys.modules, "import phrasemodels imports torch"
import torch

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig

encoder = HypernodeEncoderConfig(d=16, heads=2, layers=1, d_ff=32, longest=2).build()
states = encoder(torch.randn(1, 4, 16), torch.tensor([4]), torch.tensor([[[0, 1], [1, 2], [2, 3]]]))
assert states.shape == (1, 4, 16)
(parse,) = phrasemodels.Parser.load().parse("The red house doesn't sleep.")
assert parse.heads and parse.tree is not None, parse
others = {"pyarrow", "duckdb", "ray", "prefect", "mlflow", "pydantic", "scipy", "typer"} & set(sys.modules)
assert not others, others
print("light:", phrasemodels.__version__, parse.tree)
PYTHON
    said=$("$folder/venv/bin/phrasemodels" verdicts 2>&1 || true)
    [ "$said" = "phrasemodels: typer is not installed: in a clone of it, pip install '.[pipeline]'" ] || { echo "$said"; exit 1; }
    echo "light: $said"
    "$folder/venv/bin/pip" install --quiet ${pins[@]+"${pins[@]}"} "$wheel[parse]"
    echo "The red house doesn't sleep." | "$folder/venv/bin/phrasemodels" parse -
}

full() {
    "$folder/venv/bin/pip" install --quiet --no-deps "$wheel"
    # packages of .venv, but not its editable install: files *.pth count only in an environment's own folder
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        > "$(echo "$folder"/venv/lib/python*/site-packages)/pipeline.pth"
    export PHRASEMODELS_STORE="$folder/here/store"
    command="$folder/venv/bin/phrasemodels"
    "$folder/venv/bin/python" -c "
import phrasemodels; assert phrasemodels.__file__.startswith('$folder/venv'), phrasemodels.__file__"
    "$command" verdicts --json > verdicts.json
    grep --quiet "results/000-table1-laptop" verdicts.json || { echo "no kept result in the verdicts"; exit 1; }
    "$command" sql --database all.duckdb
    "$folder/venv/bin/python" -c "
import duckdb; print(duckdb.connect('all.duckdb', read_only=True).execute('select count(*) from verdicts').fetchone())"
    "$command" plan 2>&1 | tail --lines=1
    "$command" init my-study > /dev/null
    (cd my-study && "$command" experiments --paper my-study | grep --count my-study/table1/sample)
    "$command" reproduce --seeds 1 --row transformer --row phrase-k2 --set train.steps=4 --set recipe.corpus.train=200 \
        --set recipe.corpus.test=30 > reproduced.txt 2> progress.txt || { cat progress.txt; exit 1; }
    ls store/reports/*.html
    [ -z "$(find "$folder/venv/lib" -newer verdicts.json -path '*phrasemodels/kept*' -print -quit)" ] \
        || { echo "something was written into site-packages"; exit 1; }
}

"$1"
