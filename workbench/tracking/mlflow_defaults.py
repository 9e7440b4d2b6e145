"""Settings of MLflow, which it reads from the environment at every call."""

import os

DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # send no data without consent
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # two lines per run, in the middle of a table
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # one bar per file
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds, not 120: report a lost server within a minute
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # instead of 7, which take minutes
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",  # a server may ask for hours
}


def unset_defaults() -> dict[str, str]:
    """Return the settings whose variables the user has not set."""
    return {name: value for name, value in DEFAULTS.items() if name not in os.environ}
