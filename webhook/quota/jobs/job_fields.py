"""The fields of a Job's spec and of its pod template: what stands where.

Here are the fields that every API server since 1.30 has, and the newer ones that need more than
their JSON type to be compared. `gated` are those that an API server drops from an update where
their feature gate is off and the stored Job does not use them. What is not here is compared by
its JSON type.

`check` reads the types of fields here, too.

Source: kubernetes v1.36, api/core/v1/types.go, api/batch/v1/types.go,
apimachinery/pkg/apis/meta/v1/types.go; pkg/api/pod/util.go dropDisabledFields and
pkg/registry/batch/job/strategy.go PrepareForUpdate, here and in the releases since 1.30.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from webhook.quota.jobs.equality import (
    AMOUNT,
    AMOUNT_BUT_ZERO,
    AMOUNTS,
    ANY,
    FLAG,
    INTEGER,
    NUMBER_OR_TEXT,
    OPTIONAL_TEXT,
    STRINGS,
    TEXT,
    TIME,
    TIME_BUT_ZERO,
    Shape,
    list_of,
    part,
    struct,
)

_TEXTS: Final = list_of(TEXT)
_EXPRESSIONS: Final = list_of(struct(texts="key operator", values=_TEXTS))
_SELECTOR: Final = struct(matchLabels=STRINGS, matchExpressions=_EXPRESSIONS)
METADATA_SHAPE: Final = struct(
    texts="name generateName namespace selfLink uid resourceVersion",
    numbers="generation",
    deletionGracePeriodSeconds=INTEGER,
    finalizers=_TEXTS,
    creationTimestamp=TIME_BUT_ZERO,
    deletionTimestamp=TIME,
    labels=STRINGS,
    annotations=STRINGS,
    ownerReferences=list_of(
        struct(texts="apiVersion kind name uid", controller=FLAG, blockOwnerDeletion=FLAG)
    ),
    managedFields=list_of(
        struct("fieldsV1", texts="manager operation apiVersion fieldsType subresource", time=TIME)
    ),
)
"""The metadata of an object."""

# -- containers ----------------------------------------------------------------------------

_RESOURCES: Final = struct("claims", requests=AMOUNTS, limits=AMOUNTS)
_RESOURCE_FIELD: Final = struct(texts="containerName resource", divisor=AMOUNT_BUT_ZERO)
_FIELD: Final = struct(texts="apiVersion fieldPath")
_HTTP: Final = struct(
    texts="path host scheme",
    gated="protocol",
    port=NUMBER_OR_TEXT,
    httpHeaders=list_of(struct(texts="name value")),
)
_HANDLERS: Final = {
    "exec": struct(command=_TEXTS),
    "httpGet": _HTTP,
    "tcpSocket": struct(texts="host", port=NUMBER_OR_TEXT),
}
_PROBE: Final = struct(
    terminationGracePeriodSeconds=INTEGER,
    numbers="initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold",
    grpc=struct(numbers="port", optional="service", gated="mode"),
    others=_HANDLERS,
)
_HOOK: Final = struct(gated="sleep", others=_HANDLERS)
_USERS: Final = "seLinuxOptions windowsOptions seccompProfile"
_USER_IDS: Final = {"runAsUser": INTEGER, "runAsGroup": INTEGER, "runAsNonRoot": FLAG}
_CONTAINER: Final = struct(
    "volumeDevices",
    texts="name image workingDir terminationMessagePath terminationMessagePolicy imagePullPolicy",
    flags="stdin stdinOnce tty",
    gated="resizePolicy restartPolicy restartPolicyRules",
    command=_TEXTS,
    args=_TEXTS,
    ports=list_of(struct(texts="name protocol hostIP", numbers="hostPort containerPort")),
    envFrom=list_of(struct("configMapRef secretRef", texts="prefix")),
    env=list_of(
        struct(
            texts="name value",
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
            texts="name mountPath subPath subPathExpr mountPropagation",
            flags="readOnly",
            gated="recursiveReadOnly bindMountOptions",
        )
    ),
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
    startupProbe=_PROBE,
    lifecycle=struct(gated="stopSignal", postStart=_HOOK, preStop=_HOOK),
    securityContext=struct(
        _USERS,
        "capabilities",
        gated="procMount appArmorProfile",
        others=_USER_IDS,
        privileged=FLAG,
        readOnlyRootFilesystem=FLAG,
        allowPrivilegeEscalation=FLAG,
    ),
)

_EPHEMERAL: Final = replace(_CONTAINER, members={**_CONTAINER.members, "targetContainerName": TEXT})

# -- volumes -------------------------------------------------------------------------------

_DOWNWARD: Final = list_of(
    struct("path mode", gated="user", fieldRef=_FIELD, resourceFieldRef=_RESOURCE_FIELD)
)
CLAIM_SHAPE: Final = struct(
    "accessModes volumeName volumeMode dataSource",
    optional="storageClassName",
    gated="dataSourceRef volumeAttributesClassName",
    selector=_SELECTOR,
    resources=part(struct(requests=AMOUNTS, limits=AMOUNTS)),
    volumeAttributesClassName=OPTIONAL_TEXT,
)
"""The spec of a PersistentVolumeClaim."""


def _disk(names: str, *, numbers: str = "", flags: str = "", **members: Shape) -> Shape:
    """Return the shape of a volume of which `readOnly: false` says nothing."""
    return struct(names, numbers=numbers, flags=f"readOnly {flags}", others=members)


_VOLUME: Final = struct(
    "gitRepo secret configMap flocker vsphereVolume photonPersistentDisk",
    texts="name",
    gated="image",
    hostPath=struct(texts="path", optional="type"),
    emptyDir=struct(texts="medium", gated="mode", sizeLimit=AMOUNT),
    gcePersistentDisk=_disk("pdName fsType", numbers="partition"),
    awsElasticBlockStore=_disk("volumeID fsType", numbers="partition"),
    nfs=_disk("server path"),
    iscsi=_disk(
        "targetPortal iqn iscsiInterface fsType portals secretRef initiatorName",
        numbers="lun",
        flags="chapAuthDiscovery chapAuthSession",
    ),
    glusterfs=_disk("endpoints path"),
    persistentVolumeClaim=_disk("", claimName=TEXT),
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
    downwardAPI=struct("defaultMode", gated="defaultUser", items=_DOWNWARD),
    projected=struct(
        "defaultMode",
        gated="defaultUser",
        sources=list_of(
            struct(
                "secret configMap serviceAccountToken",
                gated="clusterTrustBundle podCertificate",
                downwardAPI=struct(items=_DOWNWARD),
                clusterTrustBundle=struct(
                    "name signerName optional path", gated="user", labelSelector=_SELECTOR
                ),
                podCertificate=struct(
                    gated="signerName keyType maxExpirationSeconds credentialBundlePath keyPath"
                    " certificateChainPath user",
                    userAnnotations=STRINGS,
                ),
            )
        ),
    ),
    ephemeral=struct(
        volumeClaimTemplate=struct(metadata=part(METADATA_SHAPE), spec=part(CLAIM_SHAPE))
    ),
)

# -- where pods go -------------------------------------------------------------------------

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_TERM: Final = struct(matchExpressions=_EXPRESSIONS, matchFields=_EXPRESSIONS)
_POD_TERM: Final = struct(
    texts="topologyKey",
    gated="matchLabelKeys mismatchLabelKeys",
    namespaces=_TEXTS,
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
    "dnsConfig os imagePullSecrets hostAliases readinessGates schedulingGates",
    texts="restartPolicy dnsPolicy serviceAccountName serviceAccount nodeName hostname subdomain"
    " schedulerName priorityClassName",
    flags="hostNetwork hostPID hostIPC",
    optional="runtimeClassName",
    gated="hostUsers resourceClaims resources hostnameOverride schedulingGroup evictionResponders",
    terminationGracePeriodSeconds=INTEGER,
    activeDeadlineSeconds=INTEGER,
    priority=INTEGER,
    preemptionPolicy=TEXT,
    automountServiceAccountToken=FLAG,
    shareProcessNamespace=FLAG,
    enableServiceLinks=FLAG,
    setHostnameAsFQDN=FLAG,
    hostnameOverride=OPTIONAL_TEXT,
    volumes=list_of(_VOLUME),
    containers=list_of(_CONTAINER),
    initContainers=list_of(_CONTAINER),
    ephemeralContainers=list_of(_EPHEMERAL),
    nodeSelector=STRINGS,
    overhead=AMOUNTS,
    resources=_RESOURCES,
    affinity=_AFFINITY,
    tolerations=list_of(struct(texts="key operator value effect", tolerationSeconds=INTEGER)),
    securityContext=struct(
        _USERS,
        "sysctls",
        others=_USER_IDS,
        fsGroup=INTEGER,
        fsGroupChangePolicy=TEXT,
        supplementalGroups=list_of(INTEGER),
        gated="supplementalGroupsPolicy seLinuxChangePolicy appArmorProfile",
    ),
    topologySpreadConstraints=list_of(
        struct(
            texts="topologyKey whenUnsatisfiable",
            numbers="maxSkew",
            minDomains=INTEGER,
            gated="nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys",
            labelSelector=_SELECTOR,
        )
    ),
)

TEMPLATE_SHAPE: Final = struct(metadata=part(METADATA_SHAPE), spec=part(_POD))
"""A pod template."""

JOB_SHAPE: Final = struct(
    "parallelism completions activeDeadlineSeconds backoffLimit manualSelector",
    "ttlSecondsAfterFinished completionMode suspend",
    gated="podFailurePolicy successPolicy backoffLimitPerIndex maxFailedIndexes"
    " podReplacementPolicy managedBy scheduling",
    selector=_SELECTOR,
    template=part(TEMPLATE_SHAPE),
    managedBy=OPTIONAL_TEXT,
    podFailurePolicy=struct(rules=list_of(ANY)),
    successPolicy=struct(rules=list_of(ANY)),
)
"""The spec of a Job."""
