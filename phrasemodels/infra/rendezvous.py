"""Rendezvous of training workers on one machine through a file, so that no port is opened.

torch's own rendezvous listens on all addresses and looks up its host name.
"""

import uuid
from dataclasses import dataclass
from typing import Any

import ray
from ray.train.torch import TorchConfig
from ray.train.torch.config import _set_torch_distributed_env_vars, _setup_torch_process_group, _TorchBackend


class FileRendezvous(_TorchBackend):
    """Sets up torch.distributed on a group of workers, with a new file after each restart of the group."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_set_torch_distributed_env_vars)
        world = len(worker_group)
        arguments = {
            "backend": backend_config.backend,
            "world_size": world,
            "init_method": f"file://{backend_config.folder}/{uuid.uuid4().hex}",
            "timeout_s": backend_config.timeout_s,
        }
        ray.get(
            [
                worker_group.execute_single_async(rank, _setup_torch_process_group, world_rank=rank, **arguments)
                for rank in range(world)
            ]
        )


@dataclass
class FileTorchConfig(TorchConfig):
    """Ray Train's configuration of torch, with a rendezvous file in `folder`, which all workers can write to."""

    folder: str = ""

    @property
    def backend_cls(self) -> type[FileRendezvous]:
        return FileRendezvous
