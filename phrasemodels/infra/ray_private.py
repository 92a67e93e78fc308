"""All that rests on parts of Ray that its authors may change without notice, of the version in TESTED.

Each function says which part it uses, and why nothing public will do. tests/infra/test_ray_private.py fails at another version.
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

    Ray reads the variable of environment.LOOPBACK when it is imported, which was before LOOPBACK was exported.
    """
    from ray._private import ray_constants

    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def read_token() -> None:
    """Make Ray in this process read the variables of its token again: it keeps what it read first (`_raylet`)."""
    from ray import _raylet

    known: Any = _raylet  # a compiled module without types
    known.Config.initialize("")
    known.AuthenticationTokenLoader.instance().reset_cache()


def own_folder() -> Path | None:
    """Return the temporary folder of the Ray that this process started; None if there is none (`_private.worker`). Ray leaves
    it behind."""
    node = ray._private.worker._global_node
    return Path(node.get_temp_dir_path()) if node else None


def file_torch_config(backend: str, folder: str) -> Any:
    """Return Ray Train's configuration of torch with a rendezvous through files in a folder that all workers of one machine can
    write to, a new file after each restart of the group (`_TorchBackend`).

    torch's own rendezvous listens on all addresses and looks up its host name. The classes are here as Ray Train takes seconds
    to import.
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
