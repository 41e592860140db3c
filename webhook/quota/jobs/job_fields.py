"""The fields of a Job's spec and of its pod template: what stands where.

Here are the fields that every API server since 1.30 has, and the newer ones that need more than
their JSON type to be compared. `gated` are those that an API server drops from an update where
their feature gate is off and the stored Job does not use them. What is not here is compared by
its JSON type.

Source: kubernetes v1.36, api/core/v1/types.go, api/batch/v1/types.go,
apimachinery/pkg/apis/meta/v1/types.go; pkg/api/pod/util.go dropDisabledFields and
pkg/registry/batch/job/strategy.go PrepareForUpdate, here and in the releases since 1.30.
"""

from __future__ import annotations

from typing import Final

from webhook.quota.jobs.equality import (
    AMOUNT,
    AMOUNT_BUT_ZERO,
    AMOUNTS,
    ANY,
    NUMBER_OR_TEXT,
    STRINGS,
    TIME,
    TIME_BUT_ZERO,
    Shape,
    list_of,
    part,
    struct,
)

_SELECTOR: Final = struct(
    matchLabels=STRINGS, matchExpressions=list_of(struct("key operator values"))
)
_METADATA: Final = struct(
    "name generateName namespace selfLink uid resourceVersion finalizers",
    "deletionGracePeriodSeconds",
    numbers="generation",
    creationTimestamp=TIME_BUT_ZERO,
    deletionTimestamp=TIME,
    labels=STRINGS,
    annotations=STRINGS,
    ownerReferences=list_of(struct("apiVersion kind name uid controller blockOwnerDeletion")),
    managedFields=list_of(
        struct("manager operation apiVersion fieldsType fieldsV1 subresource", time=TIME)
    ),
)

# -- containers ----------------------------------------------------------------------------

_RESOURCES: Final = struct("claims", requests=AMOUNTS, limits=AMOUNTS)
_RESOURCE_FIELD: Final = struct("containerName resource", divisor=AMOUNT_BUT_ZERO)
_FIELD: Final = struct("apiVersion fieldPath")
_HTTP: Final = struct(
    "path host scheme", port=NUMBER_OR_TEXT, httpHeaders=list_of(struct("name value"))
)
_HANDLERS: Final = {
    "exec": struct("command"),
    "httpGet": _HTTP,
    "tcpSocket": struct("host", port=NUMBER_OR_TEXT),
}
_PROBE: Final = struct(
    "terminationGracePeriodSeconds",
    numbers="initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold",
    grpc=struct(numbers="port", optional="service"),
    others=_HANDLERS,
)
_HOOK: Final = struct(gated="sleep", others=_HANDLERS)
_USERS: Final = "runAsUser runAsGroup runAsNonRoot seLinuxOptions windowsOptions seccompProfile"
_CONTAINER: Final = struct(
    "name image command args workingDir terminationMessagePath terminationMessagePolicy",
    "imagePullPolicy volumeDevices",
    flags="stdin stdinOnce tty",
    gated="resizePolicy restartPolicy restartPolicyRules",
    ports=list_of(struct("name protocol hostIP", numbers="hostPort containerPort")),
    envFrom=list_of(struct("prefix configMapRef secretRef")),
    env=list_of(
        struct(
            "name value",
            valueFrom=struct(
                "configMapKeyRef secretKeyRef",
                gated="fileKeyRef",
                fieldRef=_FIELD,
                resourceFieldRef=_RESOURCE_FIELD,
            ),
        )
    ),
    resources=part(_RESOURCES),
    volumeMounts=list_of(
        struct(
            "name mountPath subPath subPathExpr mountPropagation",
            flags="readOnly",
            gated="recursiveReadOnly",
        )
    ),
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
    startupProbe=_PROBE,
    lifecycle=struct(gated="stopSignal", postStart=_HOOK, preStop=_HOOK),
    securityContext=struct(
        _USERS,
        "capabilities privileged readOnlyRootFilesystem allowPrivilegeEscalation",
        gated="procMount appArmorProfile",
    ),
)

# -- volumes -------------------------------------------------------------------------------

_DOWNWARD: Final = list_of(struct("path mode", fieldRef=_FIELD, resourceFieldRef=_RESOURCE_FIELD))
_CLAIM: Final = struct(
    "accessModes volumeName volumeMode dataSource",
    optional="storageClassName",
    gated="dataSourceRef volumeAttributesClassName",
    selector=_SELECTOR,
    resources=part(struct(requests=AMOUNTS, limits=AMOUNTS)),
    volumeAttributesClassName=Shape(is_optional=True),
)


def _disk(names: str, *, numbers: str = "", flags: str = "", **members: Shape) -> Shape:
    """Return the shape of a volume of which `readOnly: false` says nothing."""
    return struct(names, numbers=numbers, flags=f"readOnly {flags}", others=members)


_VOLUME: Final = struct(
    "name gitRepo secret configMap flocker vsphereVolume photonPersistentDisk",
    gated="image",
    hostPath=struct("path", optional="type"),
    emptyDir=struct("medium", sizeLimit=AMOUNT),
    gcePersistentDisk=_disk("pdName fsType", numbers="partition"),
    awsElasticBlockStore=_disk("volumeID fsType", numbers="partition"),
    nfs=_disk("server path"),
    iscsi=_disk(
        "targetPortal iqn iscsiInterface fsType portals secretRef initiatorName",
        numbers="lun",
        flags="chapAuthDiscovery chapAuthSession",
    ),
    glusterfs=_disk("endpoints path"),
    persistentVolumeClaim=_disk("claimName"),
    rbd=_disk("monitors image fsType pool user keyring secretRef"),
    flexVolume=_disk("driver fsType secretRef", options=STRINGS),
    cinder=_disk("volumeID fsType secretRef"),
    cephfs=_disk("monitors path user secretFile secretRef"),
    fc=_disk("targetWWNs lun fsType wwids"),
    azureDisk=struct("diskName diskURI readOnly", optional="cachingMode fsType kind"),
    azureFile=_disk("secretName shareName"),
    quobyte=_disk("registry volume user group tenant"),
    portworxVolume=_disk("volumeID fsType"),
    scaleIO=_disk(
        "gateway system secretRef protectionDomain storagePool storageMode volumeName fsType",
        flags="sslEnabled",
    ),
    storageos=_disk("volumeName volumeNamespace fsType secretRef"),
    csi=struct("driver readOnly nodePublishSecretRef", optional="fsType", volumeAttributes=STRINGS),
    downwardAPI=struct("defaultMode", items=_DOWNWARD),
    projected=struct(
        "defaultMode",
        sources=list_of(
            struct(
                "secret configMap serviceAccountToken",
                gated="clusterTrustBundle podCertificate",
                downwardAPI=struct(items=_DOWNWARD),
                clusterTrustBundle=struct("name signerName optional path", labelSelector=_SELECTOR),
                podCertificate=struct(userAnnotations=STRINGS),
            )
        ),
    ),
    ephemeral=struct(volumeClaimTemplate=struct(metadata=part(_METADATA), spec=part(_CLAIM))),
)

# -- where pods go -------------------------------------------------------------------------

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_EXPRESSIONS: Final = list_of(struct("key operator values"))
_NODE_TERM: Final = struct(matchExpressions=_EXPRESSIONS, matchFields=_EXPRESSIONS)
_POD_TERM: Final = struct(
    "namespaces topologyKey",
    gated="matchLabelKeys mismatchLabelKeys",
    labelSelector=_SELECTOR,
    namespaceSelector=_SELECTOR,
)
_POD_TERMS: Final = struct(
    others={
        _REQUIRED: list_of(_POD_TERM),
        _PREFERRED: list_of(struct(numbers="weight", podAffinityTerm=part(_POD_TERM))),
    }
)
_AFFINITY: Final = struct(
    nodeAffinity=struct(
        others={
            _REQUIRED: struct(nodeSelectorTerms=list_of(_NODE_TERM)),
            _PREFERRED: list_of(struct(numbers="weight", preference=part(_NODE_TERM))),
        }
    ),
    podAffinity=_POD_TERMS,
    podAntiAffinity=_POD_TERMS,
)

_POD: Final = struct(
    "restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy",
    "serviceAccountName serviceAccount automountServiceAccountToken nodeName",
    "shareProcessNamespace imagePullSecrets hostname subdomain schedulerName hostAliases",
    "priorityClassName priority dnsConfig readinessGates enableServiceLinks preemptionPolicy",
    "setHostnameAsFQDN os schedulingGates",
    flags="hostNetwork hostPID hostIPC",
    optional="runtimeClassName",
    gated="hostUsers resourceClaims resources hostnameOverride schedulingGroup",
    hostnameOverride=Shape(is_optional=True),
    volumes=list_of(_VOLUME),
    containers=list_of(_CONTAINER),
    initContainers=list_of(_CONTAINER),
    ephemeralContainers=list_of(_CONTAINER),
    nodeSelector=STRINGS,
    overhead=AMOUNTS,
    resources=_RESOURCES,
    affinity=_AFFINITY,
    tolerations=list_of(struct("key operator value effect tolerationSeconds")),
    securityContext=struct(
        _USERS,
        "supplementalGroups fsGroup sysctls fsGroupChangePolicy",
        gated="supplementalGroupsPolicy seLinuxChangePolicy appArmorProfile",
    ),
    topologySpreadConstraints=list_of(
        struct(
            "topologyKey whenUnsatisfiable minDomains",
            numbers="maxSkew",
            gated="nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys",
            labelSelector=_SELECTOR,
        )
    ),
)

TEMPLATE_SHAPE: Final = struct(metadata=part(_METADATA), spec=part(_POD))
"""A pod template."""

JOB_SHAPE: Final = struct(
    "parallelism completions activeDeadlineSeconds backoffLimit manualSelector",
    "ttlSecondsAfterFinished completionMode suspend",
    gated="podFailurePolicy successPolicy backoffLimitPerIndex maxFailedIndexes"
    " podReplacementPolicy managedBy",
    selector=_SELECTOR,
    template=part(TEMPLATE_SHAPE),
    managedBy=Shape(is_optional=True),
    podFailurePolicy=struct(rules=list_of(ANY)),
    successPolicy=struct(rules=list_of(ANY)),
)
"""The spec of a Job."""
