"""Environment variables for every process of the project: no telemetry, and no open port beyond loopback.

Import this module before prefect, ray or mlflow. Your own variables stay as they are.
"""

import importlib.util
import os
import sys

DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    # a pickle can run code
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",  # `ray start` reports even that reports are off
    # the embedded cluster is on loopback; for a cluster on another machine phrasemodels/infra/settings.py requires a token
    "RAY_AUTH_MODE": "token" if any(map(os.environ.get, ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))) else "disabled",
    # else, under `uv run`, Ray uploads the working folder and each worker resolves all packages again (ray#50961)
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a thread that outlives the run would start a new cluster
    # the default is 2 s, by which the end of every training would be seen later
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",
    # seconds after which a group that waits for room is asked for again, or given up (phrasemodels/infra/cluster.py)
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "60",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # hide GPUs from tasks that asked for none
    "DISABLE_SAFETENSORS_CONVERSION": "1",  # else transformers asks the hub to convert weights of other formats
    "GIT_PYTHON_REFRESH": "quiet",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",  # a server that Prefect starts has no password, and outlives a kill
    # for two minutes a server answers 500 while its database restarts
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
    "PREFECT_CLIENT_MAX_RETRIES": "6",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the command line prints errors, once
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5",  # one minute, so that a server may restart; the default is four
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

HERE = ("127.0.0.1", "localhost", "::1")

# For the embedded Ray and its workers. Ray has no setting against its search for a cloud's metadata service; a proxy that
# does not answer stops it. Training workers would meet on an outside address; the variable that keeps them on loopback
# is named after the operating systems where loopback is the default.
LOOPBACK = {
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
}

for name, value in DEFAULTS.items():
    os.environ.setdefault(name, value)

# A profile in the home folder may name another server, with its key: it is read only if a variable names it.
if not any(map(os.environ.get, ("PREFECT_PROFILE", "PREFECT_PROFILES_PATH", "PREFECT_HOME"))):
    os.environ["PREFECT_PROFILES_PATH"] = os.devnull

# With a SOCKS proxy no client of Prefect can be made, not even for this machine. In its place: one that does not answer.
for name in (case for kind in ("all", "http", "https") for case in (f"{kind}_proxy", f"{kind}_PROXY".upper())):
    if os.environ.get(name, "").lower().startswith("socks") and importlib.util.find_spec("socksio") is None:
        print(f"{name} names a SOCKS proxy, which is not supported: other machines are not reached", file=sys.stderr)
        os.environ[name] = LOOPBACK["http_proxy"]

# Clients reach the services on this machine without a proxy.
name = "no_proxy" if os.environ.get("no_proxy") else "NO_PROXY"
if (direct := os.environ.get(name, "")) != "*":
    os.environ[name] = ",".join(dict.fromkeys(filter(None, [*direct.split(","), *HERE])))
