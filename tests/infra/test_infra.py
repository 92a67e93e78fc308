"""Deployment files agree with the code; settings are checked, and their errors show no secret."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import PROJECT
from prefect.exceptions import ParameterTypeError
from running import prepared
from serving import serving

from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.run.reproduce import gc, reproduce
from phrasemodels.infra import cluster, environment
from phrasemodels.infra import services as infra_services
from phrasemodels.infra.cluster import NoRoomError, TorchTrainerLaunch, bundles_on
from phrasemodels.infra.environment import DEFAULTS
from phrasemodels.infra.ray_private import on_loopback
from phrasemodels.infra.services import Server, exported, services, start_embedded, start_ray, stop_ray, wait_for
from phrasemodels.infra.settings import PASSWORDS, Settings

INFRA = PROJECT / "phrasemodels" / "infra"
SECRETS = [name for names in PASSWORDS.values() for name in names]
FLOWS = {"phrasemodels.flows.run.reproduce.reproduce": reproduce, "phrasemodels.flows.run.reproduce.gc": gc}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((INFRA / name).read_text()))


def test_deployments_have_existing_flows_and_parameters() -> None:
    found = yaml.safe_load((PROJECT / "prefect.yaml").read_text())["deployments"]
    assert {d["name"]: [s["slug"] for s in d["schedules"]] for d in found} == {
        "sample": [], "tables": ["monday", "tuesday", "wednesday", "thursday", "friday", "weekly"], "store": ["daily"]}  # fmt: skip
    for deployment in found:
        for its in ({}, *(schedule.get("parameters", {}) for schedule in deployment["schedules"])):
            FLOWS[deployment["entrypoint"]].validate_parameters(deployment["parameters"] | its)
        assert deployment["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
        early = deployment["work_pool"]["job_variables"]["env"]  # a worker imports Prefect before the project
        assert early == {name: value for name, value in DEFAULTS.items() if name in early} and len(early) == 4


def test_a_flow_refuses_fewer_than_no_trials() -> None:
    with pytest.raises(ParameterTypeError, match=r"tune: .*greater than or equal to 0"):
        reproduce.validate_parameters({"tune": -1})


@pytest.mark.parametrize("file", ["compose.yaml", "kubernetes-pool.yaml"])
def test_workers_have_no_limit_so_that_prefect_cancels_concurrent_runs(file: str) -> None:
    started = re.sub(r"[\[\],\s]+", " ", (INFRA / file).read_text())
    assert "prefect worker start --pool phrasemodels" in started
    assert "--limit" not in started


def variables() -> dict[str, set[str]]:
    """Return the variables that deployment files set for our processes."""
    compose, (config, *_) = documents("compose.yaml")[0], documents("ray-cluster.yaml")
    job = json.loads((INFRA / "kubernetes-job.json").read_text())["variables"]["properties"]["env"]["default"]
    return {
        "compose": {*compose["x-node"], *compose["services"]["worker"]["environment"]},
        "ray-cluster": set(config["data"]),
        "job": set(job),
    }


@pytest.mark.parametrize("file", ["compose", "ray-cluster", "job"])
def test_deployment_files_set_only_existing_settings(file: str) -> None:
    known = {f"PHRASEMODELS_{name.upper()}" for name in Settings.model_fields}
    given = {name for name in variables()[file] if name.startswith("PHRASEMODELS_")}
    assert given
    assert given <= known


def test_the_kubernetes_worker_accepts_the_job_template() -> None:
    from prefect.utilities.templating import apply_values
    from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

    template = json.loads((INFRA / "kubernetes-job.json").read_text())
    defaults = {name: v["default"] for name, v in template["variables"]["properties"].items() if "default" in v}
    made = KubernetesWorkerJobConfiguration.model_validate(apply_values(template["job_configuration"], defaults))
    (container,) = made.job_manifest["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "phrasemodels:latest"


def test_compose_publishes_ports_on_loopback_only_and_holds_no_secret() -> None:
    compose = documents("compose.yaml")[0]
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert set(service.get("depends_on", [])) <= compose["services"].keys(), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (INFRA / source).exists(), volume
    text = (INFRA / "compose.yaml").read_text()
    secrets = set(re.findall(r"\$\{(\w+):\?", text))
    chosen = {"PHRASEMODELS_IMAGE", "S3_IMAGE", "NODES", "NODE_CPUS", "CACHE_GIB"}  # only these have defaults
    assert set(re.findall(r"\$\{(\w+):-", text)) == chosen
    assert not re.search(r"\$\{\w+\}", text)
    assert not re.search(r"://[^@\s/]+:[^@\s/]*@", "".join(map(str, words_of_commands(compose))))
    assert secrets == set(re.findall(r"^(\w+)=", (INFRA / "env.example").read_text(), re.M))


def words_of_commands(compose: dict[str, Any]) -> Iterator[str]:
    """Yield the words of all commands, which the list of processes shows."""
    for service in compose["services"].values():
        yield from service.get("command", [])


def test_the_dockerfile_copies_existing_files() -> None:
    lines = (INFRA / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert [name for name in copied if not (PROJECT / name).exists()] == []
    with (PROJECT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages <= set(copied)
    assert {"s3", "server"} <= project["project"]["optional-dependencies"].keys()


def test_kubernetes_manifests_agree_with_the_pins_and_with_each_other() -> None:
    pins = dict(re.findall(r"^(\w+)==(\S+)$", (PROJECT / "constraints.txt").read_text(), re.M))
    config, cluster = documents("ray-cluster.yaml")
    assert cluster["spec"]["rayVersion"] == pins["ray"]
    pool = {document["kind"]: document for document in documents("kubernetes-pool.yaml")}
    (worker,) = pool["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert worker["image"].split(":")[1].startswith(f"{pins['prefect']}-")
    secrets = set(re.findall(r"^(\w+)=", (INFRA / "env.example").read_text(), re.M))
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    known = {"secretKeyRef": secrets, "configMapKeyRef": config["data"]}
    for container in (worker, *(g["template"]["spec"]["containers"][0] for g in groups)):
        for ((kind, reference),) in (v["valueFrom"].items() for v in container["env"] if "valueFrom" in v):
            assert kind not in known or reference["key"] in known[kind], (container["name"], reference)
    together = "".join((INFRA / name).read_text() for name in ("ray-cluster.yaml", "kubernetes-pool.yaml"))
    assert [document["kind"] for document in yaml.safe_load_all(together)] == ["ConfigMap", "RayCluster", *pool]
    claim = pool["PersistentVolumeClaim"]["metadata"]["name"]
    assert f'"claimName": "{claim}"' in (INFRA / "kubernetes-job.json").read_text()
    assert pool["RoleBinding"]["roleRef"]["name"] == pool["Role"]["metadata"]["name"]


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_settings_are_variables(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("STORE", "s3://bucket/here"), ("CACHE", "near"), ("CPUS", "2")):
        monkeypatch.setenv(f"PHRASEMODELS_{name}", value)
    settings = Settings()
    assert (settings.remote, settings.root, settings.cpus) == ("s3://bucket/here", clean / "near", 2)
    assert Settings(store="plain").root == clean / "plain"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PHRASEMODELS_MLFLOW_URI", "http://me:hush@host", "such as a password.*MLFLOW_TRACKING_PASSWORD"),
        ("PHRASEMODELS_MLFLOW_URI", "http://hush@127.0.0.1:5000", "such as a password.*MLFLOW_TRACKING_PASSWORD"),
        ("PHRASEMODELS_MLFLOW_URI", "u:hush@127.0.0.1:5000", "such as a password.*MLFLOW_TRACKING_PASSWORD"),
        (
            "PHRASEMODELS_MLFLOW_URI",
            "http://127.0.0.1:9/?password=hush",
            "such as a password.*MLFLOW_TRACKING_PASSWORD",
        ),
        ("PHRASEMODELS_MLFLOW_URI", "postgresql://u@127.0.0.1:1/db?password=hush", "such as a password.*PGPASSWORD"),
        ("PHRASEMODELS_MLFLOW_URI", "postgresql://u:hush@127.0.0.1:1/db", "such as a password.*PGPASSWORD"),
        (
            "PHRASEMODELS_PREFECT_API_URL",
            "http://127.0.0.1:4200/api#hush",
            "such as a password.*PREFECT_API_AUTH_STRING",
        ),
        ("PHRASEMODELS_RAY_ADDRESS", "hush@127.0.0.1:6379", "such as a password.*RAY_AUTH_TOKEN"),
        ("PHRASEMODELS_MLFLOW_URI", "http://u:hush@h\N{ACCOUNT OF}", "mlflow_uri: is not an address"),
        ("PHRASEMODELS_STORE", "s3://bucket/x?secret=hush", "such as a password.*AWS_SECRET_ACCESS_KEY"),
        ("PHRASEMODELS_CACHE_GIB", "inf", "cache_gib: .*less than"),
        ("PHRASEMODELS_RAY_ADDRESS", "hush:6379", "ray_address: .*set RAY_AUTH_TOKEN"),
        ("PHRASEMODELS_RAY_ADDRESS", "ray://10.0.0.1:10001", "ray_address: .*set RAY_AUTH_TOKEN"),
        ("PHRASEMODELS_PREFECT_API_URL", "http://hush:4200/api", "prefect_api_url: .*set PREFECT_API_AUTH_STRING"),
        ("PHRASEMODELS_MLFLOW_URI", "https://[2001:db8::1]:5000", "mlflow_uri: .*set MLFLOW_TRACKING_USERNAME and"),
        ("PHRASEMODELS_STORE", "s3://key:hush@bucket", "such as a password.*AWS_SECRET_ACCESS_KEY"),
        ("PHRASEMODELS_STORE", "gopher://hush", "must be file, s3, not gopher"),
        ("PHRASEMODELS_CPUS", "hush", "cpus: .*integer"),
        ("PHRASEMODELS_CPUS", "0", "cpus: .*greater than or equal to 1"),
        ("PHRASEMODELS_MLFLOW_URL", "hush", "PHRASEMODELS_MLFLOW_URL is unknown; did you mean PHRASEMODELS_MLFLOW_URI"),
        *(
            (f"PHRASEMODELS_{name}", "~nobody-hush/x", "no home folder of such a user")
            for name in ("STORE", "CACHE", "MIRROR", "SUPPLIED", "PARSERS")
        ),
        ("PHRASEMODELS_STORE", "s3://", "store: names no bucket or folder"),
        ("PHRASEMODELS_STORE", "file://", "store: names no bucket or folder"),
        *(
            ("PHRASEMODELS_STORE", wrong, r"store: is no address .*s3://bucket.*whole path")
            for wrong in ("s3:/hush/x", "S3//hush", "file:/hush", "gs:/hush")
        ),
        ("PHRASEMODELS_CACHE", "s3://hush/x", r"cache: is no address .*write the whole path"),
        ("PHRASEMODELS_SETTINGS", "hush.toml", "PHRASEMODELS_SETTINGS is unknown"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line_without_its_value(clean, monkeypatch, name, value, message) -> None:
    monkeypatch.setenv(name, value)
    for secret in SECRETS:
        monkeypatch.delenv(secret, raising=False)
    with pytest.raises(ValueError, match=message) as error:
        Settings()
    assert "hush" not in str(error.value).replace("gopher://hush", "")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("ray_address", "head:6379", "RAY_AUTH_TOKEN"),
        ("prefect_api_url", "https://prefect/api", "PREFECT_API_KEY"),
        ("mlflow_uri", "http://mlflow:5000", "MLFLOW_TRACKING_PASSWORD"),
        ("ray_address", "auto", ""),
        ("ray_address", "127.0.0.1:6379", ""),
        ("prefect_api_url", "http://localhost:4200/api", ""),
        ("mlflow_uri", "http://[::1]:5000", ""),
        ("mlflow_uri", "sqlite:///here.db", ""),
        ("mlflow_uri", "postgresql://host/mlflow", ""),  # Postgres asks for the password itself
        ("mlflow_uri", "postgresql://user@host/mlflow", ""),
        ("store", "/x/?s=1#a@b", ""),
        ("store", "./s3:/x", ""),
        ("store", "a:b/s3//x", ""),
    ],
)
def test_services_on_other_machines_need_a_password(clean, monkeypatch, name, value, secret) -> None:
    for known in SECRETS:
        monkeypatch.delenv(known, raising=False)
    if secret:
        monkeypatch.setenv(secret, "hush")
    assert getattr(Settings(**{name: value}), name) == value


def test_a_user_without_a_password_is_refused(clean, monkeypatch) -> None:
    monkeypatch.delenv("PREFECT_API_KEY", raising=False)
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "admin:")
    with pytest.raises(ValueError, match=r"prefect_api_url: .*set PREFECT_API_AUTH_STRING"):
        Settings(prefect_api_url="http://prefect:4200/api")


def test_a_store_with_a_question_mark_in_its_name_is_refused_for_mlflow(clean: Path) -> None:
    with pytest.raises(ValueError, match=r"st\?ore: MLflow cannot use a folder .*; choose another"):
        Settings(store=clean / "st?ore").tracking_uri  # noqa: B018


@pytest.mark.parametrize(("token", "mode"), [("7" * 32, "token"), ("", "disabled")])
def test_ray_uses_a_token_if_there_is_one(token: str, mode: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"} | {
        "RAY_AUTH_TOKEN": token
    }
    command = [sys.executable, "-c", "import os, phrasemodels.infra.environment; print(os.environ['RAY_AUTH_MODE'])"]
    assert subprocess.run(command, env=inherited, cwd=PROJECT, capture_output=True, text=True).stdout.strip() == mode


@pytest.mark.parametrize("given", ["", "intranet", "*"])
def test_services_on_this_machine_are_reached_without_a_proxy(given: str, tmp_path: Path) -> None:
    """Clients: urllib, httpx (Prefect) and requests (MLflow). The proxy does not answer."""
    (tmp_path / "api" / "admin").mkdir(parents=True)
    (tmp_path / "api" / "admin" / "version").write_text('"3"')
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as url:
        code = (
            f"from phrasemodels.infra import services; services.wait_for(services.Server('{url}')); "
            "import httpx, requests; "
            f"print(httpx.get('{url}/api/').status_code, requests.get('{url}/api/').status_code)"
        )
        inherited = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
        inherited |= {"http_proxy": "http://127.0.0.1:9", "NO_PROXY": given, "ALL_PROXY": "socks5://127.0.0.1:9"}
        done = subprocess.run([sys.executable, "-c", code], env=inherited, cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout.split() == ["200", "200"], done.stderr


def test_waiting_for_a_server_stops_when_its_process_ends(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    gone.wait()
    (tmp_path / "log").write_text("sqlite3.OperationalError: database or disk is full\nended\n")
    with pytest.raises(OSError, match=r"server ended with status 7 \(.*database or disk is full\): see"):
        wait_for(Server("http://127.0.0.1:9", gone, tmp_path / "log"))
    with pytest.raises(OSError, match="server ended with status 7: see"):
        wait_for(Server("http://127.0.0.1:9", gone))


class Refuses(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(401)


def test_a_server_of_others_is_waited_for_while_it_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses, bind_and_activate=False) as server:
        server.server_bind()  # it has its port, but does not listen yet
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(infra_services, "RESTART", 0.3)
        with pytest.raises(OSError, match=r"did not answer within 0 s: is PHRASEMODELS_PREFECT_API_URL right\?"):
            wait_for(Server(url))
        monkeypatch.setattr(infra_services, "RESTART", 30.0)
        threading.Timer(0.5, lambda: (server.server_activate(), server.serve_forever())).start()
        wait_for(Server(url))
        server.shutdown()


FIRST_START = """
import sys
from pathlib import Path
import phrasemodels.infra.environment
from phrasemodels.infra import services
from phrasemodels.infra.services import prefect_server, wait_for
services.PATIENCE = 3000.0  # eight servers at once take their time on a busy machine
with prefect_server(Path(sys.argv[1])) as server:
    wait_for(server)
print("answered")
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_eight_first_starts_of_prefect_at_once_on_a_new_store_all_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_START, str(tmp_path)]
    started = [
        subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    ended = [process.communicate() for process in started]
    assert [out for out, _ in ended] == ["answered\n"] * 8, [err[-300:] for _, err in ended]
    assert "duplicate column" not in (tmp_path / "server.log").read_text()


def test_prefects_own_variable_for_the_server_needs_a_password_too(clean: Path, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://10.1.2.3:4200/api")
    with pytest.raises(ValueError, match=r"prefect_api_url: .*set PREFECT_API_AUTH_STRING"), services(Settings()):
        pass


def test_a_cluster_of_one_node_and_missing_gpus_are_refused(tmp_path: Path) -> None:
    try:
        with pytest.raises(OSError, match="Ray has one node"):
            start_ray(Settings(store=str(tmp_path), cpus=1, cluster=True))
        with pytest.raises(ValueError, match=r"2 workers need .*'GPU': 0.5.*the cluster has .*'GPU': 0"):
            TorchTrainerLaunch("x", workers=2, gpus=0.5).check()
        TorchTrainerLaunch("x", workers=2, gpus=0.5, grows=True).check()
        for asked in ("workers=64", "threads=2", "gpus=1"):
            request = Request("003", "nmt", "sample", 1, [f"train.{asked}"], ["char-simple"])
            with pytest.raises(ValueError, match=r"workers need .* each, the cluster has \[{'CPU': 1.*room for [01]:"):
                prepared(Settings(store=str(tmp_path / "store")), request).check()
    finally:
        stop_ray()


def test_a_group_says_what_it_waits_for_and_until_when_and_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, said = [{"CPU": 1.0}], []
    monkeypatch.setattr(cluster, "ROOM_EVERY", 0.01)
    monkeypatch.setattr(cluster, "_living_nodes", lambda: nodes)
    launch = TorchTrainerLaunch("x", workers=2, wait=0.2, on_wait=said.append)
    with launch._saying_what_it_waits_for() as lost:
        assert lost.wait(30)
        nodes.append({"CPU": 1.0})
        end = time.monotonic() + 30
        while len(said) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert re.fullmatch(r"nodes \(2 workers need .* room for 1\); gives up at \d\d:\d\d UTC", said[0])
    assert said[1:] == [""], "a node has joined"


def test_a_group_says_that_other_runs_hold_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    said, answers = list[str](), [NoRoomError(), None]
    monkeypatch.setattr(cluster, "_living_nodes", lambda: [{"CPU": 2.0}])

    def fit(*_: object) -> None:
        if answer := answers.pop(0):
            raise answer

    monkeypatch.setattr(TorchTrainerLaunch, "_fit", fit)
    TorchTrainerLaunch("x", workers=2, on_wait=said.append)(print)
    assert said == ["processors (2 times {'CPU': 1.0}), which other runs hold"] and not answers


def test_nothing_that_is_printed_ends_a_run() -> None:
    read, write = os.pipe()
    os.close(read)
    code = (
        "import sys; from phrasemodels.infra.signals import unbroken_output\n"
        "with unbroken_output():\n    print('x', file=sys.stderr, flush=True); print('y', flush=True)\n"
        "import os; os._exit(7)"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=write, cwd=PROJECT)
    os.close(write)
    assert ended.returncode == 7


def test_a_wrong_address_is_named_soon(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infra_services, "RESTART", 0.1)
    monkeypatch.setattr(infra_services, "REACH", 0.5)
    with pytest.raises(OSError, match=r"Ray does not answer at 127.0.0.1:9 .*is PHRASEMODELS_RAY_ADDRESS right"):
        start_ray(Settings(ray_address="127.0.0.1:9"))
    with pytest.raises(
        OSError, match=r"MLflow does not answer at nowhere.invalid:5000 .*is PHRASEMODELS_MLFLOW_URI right"
    ):
        infra_services.reach("http://nowhere.invalid:5000", "MLflow", "PHRASEMODELS_MLFLOW_URI")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(OSError, match="is no Ray: is PHRASEMODELS_RAY_ADDRESS right"):
            start_ray(Settings(ray_address=f"127.0.0.1:{server.server_port}"))
        server.shutdown()


@pytest.mark.parametrize(
    ("bundle", "nodes", "room"),
    [
        ({"CPU": 8.0}, [{"CPU": 4}, {"CPU": 4}], 0),
        ({"CPU": 3.0}, [{"CPU": 4}, {"CPU": 7}, {}], 3),
        ({"CPU": 1.0, "GPU": 0.6}, [{"CPU": 9, "GPU": 2}], 2),
        ({"CPU": 1.0, "GPU": 0.5}, [{"CPU": 9, "GPU": 1}, {"CPU": 1, "GPU": 1}], 3),
        ({"CPU": 1.0, "GPU": 2.0}, [{"CPU": 9, "GPU": 3}, {"CPU": 9, "GPU": 1}], 1),
    ],
)
def test_bundles_are_on_one_node_and_fractions_of_a_gpu_on_one_gpu(bundle, nodes, room) -> None:
    assert sum(bundles_on(node, bundle) for node in nodes) == room


def test_a_start_of_ray_that_times_out_is_tried_again() -> None:
    start = "from phrasemodels.infra.services import start_embedded; start_embedded(1, {})"
    hasty = {**os.environ, **environment.LOOPBACK, "RAY_gcs_server_port_wait_time_s": "0"}
    ended = subprocess.run([sys.executable, "-c", start], env=hasty, capture_output=True, text=True, timeout=120)
    assert ended.stderr.splitlines()[-1].startswith("OSError: Ray timed out three times"), ended.stderr


def test_two_trainings_share_a_gpu(tmp_path: Path) -> None:
    """Ray is given a GPU that need not exist. Two trainings run on it at once, since each waits for the other."""

    def meet(folder: str, me: int) -> None:
        import time
        from pathlib import Path

        import ray

        Path(folder, str(me)).write_text(str(ray.get_gpu_ids()))
        until = time.monotonic() + 300
        while not Path(folder, str(1 - me)).exists():
            if time.monotonic() > until:
                raise ValueError("the other training did not start")
            time.sleep(0.1)

    with exported(environment.LOOPBACK), on_loopback():  # else Ray searches for a cloud's metadata service
        start_embedded(3, {"num_gpus": 1, "log_to_driver": False})
    try:
        TorchTrainerLaunch("x", workers=2, gpus=0.5).check()
        for workers, gpus, room in ((3, 0.5, 2), (2, 0.6, 1)):
            with pytest.raises(ValueError, match=rf"{workers} workers need .* room for {room}"):
                TorchTrainerLaunch("x", workers, gpus=gpus).check()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda me: TorchTrainerLaunch(f"x{me}", gpus=0.5)(meet, str(tmp_path), me), range(2)))
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0": "[0]", "1": "[0]"}
    finally:
        stop_ray()
