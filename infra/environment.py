"""Environment of every process that the project starts: nothing is sent to anyone, nothing listens beyond loopback.

Import this before prefect, ray or mlflow. What the user has set stays.
"""

import os
import sys

DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",  # ray start reports that it does not report
    # the embedded cluster is on loopback; for one on another machine settings ask for a token
    "RAY_AUTH_MODE": "token" if any(map(os.environ.get, ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))) else "disabled",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a thread that comes after the end would start a cluster of its own
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",
    # a group may have to wait for other work to end; what can never be met is refused before (infra/runner.py)
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "86400",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "DISABLE_SAFETENSORS_CONVERSION": "1",  # transformers would ask the hub to convert other weights
    "GIT_PYTHON_REFRESH": "quiet",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # errors are shown once, by the command line
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5",  # a minute, in which a server may be started again; by default four
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

HERE = ("127.0.0.1", "localhost", "::1")

# For the embedded Ray and all its workers. Ray looks for a cloud's metadata service whatever it is told; a proxy to
# nowhere is what stops it. Its training workers would meet on an outside address; the switch that keeps them on
# loopback is named after the systems where that is the default.
LOOPBACK = {
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
}

for name, value in DEFAULTS.items():
    os.environ.setdefault(name, value)

# A proxy is for what is elsewhere: no client of ours asks one for the services that were started here.
name = "no_proxy" if os.environ.get("no_proxy") else "NO_PROXY"
if (direct := os.environ.get(name, "")) != "*":
    os.environ[name] = ",".join(dict.fromkeys(filter(None, [*direct.split(","), *HERE])))
