"""Uses of Ray's private parts, for the version in TESTED. Ray may change these parts without notice.

Each function names the part and says why nothing public will do. tests/infra/test_ray_private.py fails at another version.
"""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

TESTED = "2.60"  # the version of Ray that this was written for


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Keep Ray in this process from replacing 127.0.0.1 by an outside address (`_private.ray_constants`).

    Ray reads the variable of environment.LOOPBACK at its import, before LOOPBACK was exported.
    """
    from ray._private import ray_constants

    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def read_token() -> None:
    """Make Ray in this process read the variables of its token again. It keeps the first ones (`_raylet`)."""
    from ray import _raylet

    known: Any = _raylet  # a compiled module without types
    known.Config.initialize("")
    known.AuthenticationTokenLoader.instance().reset_cache()


def own_folder() -> Path | None:
    """Return the temporary folder of the Ray of this process, or None (`_private.worker`). Ray leaves the folder behind."""
    node = ray._private.worker._global_node
    return Path(node.get_temp_dir_path()) if node else None


def file_torch_config(backend: str, folder: str) -> Any:
    """Configure torch in Ray Train for a rendezvous through files (`_TorchBackend`).

    All workers of one machine must be able to write to the folder. Each restart of the group uses a new file. torch's own
    rendezvous listens on all addresses and looks up its host name. The classes are defined here because Ray Train takes
    seconds to import.
    """
    from ray.train.torch import TorchConfig
    from ray.train.torch.config import _set_torch_distributed_env_vars, _setup_torch_process_group, _TorchBackend

    class FileRendezvous(_TorchBackend):
        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            worker_group.execute(_set_torch_distributed_env_vars)
            world = len(worker_group)
            arguments = {
                "backend": backend_config.backend,
                "world_size": world,
                "init_method": f"file://{folder}/{uuid.uuid4().hex}",
                "timeout_s": backend_config.timeout_s,
            }
            ray.get(
                [
                    worker_group.execute_single_async(rank, _setup_torch_process_group, world_rank=rank, **arguments)
                    for rank in range(world)
                ]
            )

    class FileTorchConfig(TorchConfig):
        @property
        def backend_cls(self) -> type[FileRendezvous]:
            return FileRendezvous

    return FileTorchConfig(backend=backend)
