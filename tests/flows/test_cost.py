"""Memory and hours of a training, measured before it begins."""

import dataclasses
import math

from running import prepared
from test_tune import SMALL

from phrasemodels.data.store.store import Executor
from phrasemodels.flows.run.local import Cost, costs, memory_limit
from phrasemodels.infra.settings import Settings


def test_ten_updates_tell_memory_and_hours(tmp_path):
    execution = prepared(Settings(store=tmp_path), dataclasses.replace(SMALL, rows=("transformer",)))
    (cost,) = costs(execution.plan, execution.store, Executor())
    assert not execution.store.find(execution.plan.pipelines[0].trained), "the updates of the measurement are not kept"
    assert 100 < cost.memory < 5000 and 1e-4 < cost.seconds < 100
    assert 0 < memory_limit() < math.inf
    rows = [
        cost.described(cost.memory + 1),
        cost.described(cost.memory - 1),
        Cost(cost.experiment, math.inf).described(1e9),
    ]
    assert [row["fits"] for row in rows] == ["yes", "no", "no"]
