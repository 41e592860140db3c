"""The configuration: what can be set, reading it from a file, keeping up with changes.

A file is one YAML or JSON document with `apiVersion: deferredquota.io/v1alpha1` and
`kind: Configuration`; every other field may be left out or null. A field that is not known,
written twice or of the wrong type is an error that names its path.

This package lies below the core and knows no quota rule. What only the core can judge (scope
expressions, resource names) is checked here for its shape and kept as plain values; the caller
passes a `check` that reads those values with the core and raises a ValueError whose text names
the path. No other package reads the environment or settings from files.
"""

from webhook.config.job_rules import JobGrowth, JobResizers, JobRuleSettings, JobVerdict
from webhook.config.schema import (
    API_VERSION,
    KIND,
    Check,
    configuration_schema,
    load_configuration,
)
from webhook.config.settings import (
    BindNodeFit,
    CertificateSettings,
    Configuration,
    ConfigurationError,
    Coverage,
    ElasticLabelOrder,
    ElasticSettings,
    Extender,
    Gating,
    JobFeatureGates,
    Limits,
    MirrorPods,
    MustSpecify,
    NodeFit,
    PageSettings,
    Queue,
    QueueOrder,
    QuotaUpdate,
    ReclaimMode,
    ReclaimSettings,
    TerminatingPods,
    Timeouts,
)
from webhook.config.watched_file import ConfigurationFile

__all__ = [
    "API_VERSION",
    "KIND",
    "BindNodeFit",
    "CertificateSettings",
    "Check",
    "Configuration",
    "ConfigurationError",
    "ConfigurationFile",
    "Coverage",
    "ElasticLabelOrder",
    "ElasticSettings",
    "Extender",
    "Gating",
    "JobFeatureGates",
    "JobGrowth",
    "JobResizers",
    "JobRuleSettings",
    "JobVerdict",
    "Limits",
    "MirrorPods",
    "MustSpecify",
    "NodeFit",
    "PageSettings",
    "Queue",
    "QueueOrder",
    "QuotaUpdate",
    "ReclaimMode",
    "ReclaimSettings",
    "TerminatingPods",
    "Timeouts",
    "configuration_schema",
    "load_configuration",
]
