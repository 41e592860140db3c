"""The configuration that a command judges by: of a file, or as it is installed in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from webhook.cli.exit_codes import InputError
from webhook.config import (
    Configuration,
    ConfigurationError,
    ConfigurationFile,
    load_configuration,
)
from webhook.kube.api import CONFIG_MAPS, ClusterApi, ForbiddenError, NotFoundError
from webhook.operations.names import CONFIG_KEY
from webhook.policy import check_configuration
from webhook.state.well_known import CONFIG_MAP


def configuration_of(api: ClusterApi, path: Path | None, namespace: str) -> Configuration:
    """Return the configuration of a file, or of the cluster as installed in `namespace`.

    Raises:
        InputError: It cannot be used; the text has the field.
        ApiError: The cluster does not answer.
    """
    if path is not None:
        given = read_configuration(path)
        return Configuration() if given is None else given.current
    try:
        raw = api.get(CONFIG_MAPS, CONFIG_MAP, namespace=namespace)
    except (NotFoundError, ForbiddenError):
        return Configuration()
    data = raw.get("data")
    text = data.get(CONFIG_KEY) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return Configuration()
    source = f"ConfigMap {namespace}/{CONFIG_MAP}, {CONFIG_KEY}"
    try:
        return load_configuration(text, source, check=check_configuration)
    except ConfigurationError as err:
        raise InputError(f"{err} (--config reads another one)") from err


def read_configuration(path: Path | None) -> ConfigurationFile | None:
    """Read the configuration file; None without one.

    Raises:
        InputError: It cannot be used; the text has the field.
    """
    if path is None:
        return None
    try:
        return ConfigurationFile(path, check=check_configuration)
    except ConfigurationError as err:
        raise InputError(str(err)) from err
