# syntax=docker/dockerfile:1
# One image for webhook and controller. It runs as any user but root, on a read-only root file system:
# mount an emptyDir at /tmp, and certificates and configuration where the options of `serve` name them.
#
#   docker build --build-arg VERSION=0.1.0 .
#   docker build --target sbom --output dist .     # only the bill of materials of its packages

# The index of all architectures. .github/dependabot.yml proposes the next, within days of a security fix.
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS base

FROM base AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
WORKDIR /src
RUN python -m venv --without-pip /opt/venv
COPY requirements/runtime.txt requirements/build.txt requirements/left-out.txt requirements/
# The asynchronous client of `kubernetes` is never imported, and with it goes what only it needs: 60 % of all.
RUN python -m pip --python /opt/venv/bin/python install --no-compile --require-hashes -r requirements/runtime.txt \
    && python -m pip --python /opt/venv/bin/python uninstall --yes -r requirements/left-out.txt \
    && rm -r /opt/venv/lib/python3.*/site-packages/kubernetes/aio \
    && python -m pip install --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY webhook webhook
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python -m pip --python /opt/venv/bin/python install --no-deps --no-index /wheels/*.whl \
    # nothing is compiled at the start; `kubernetes` reads kubeconfigs only, and a pod has none
    && /opt/venv/bin/python -m compileall -q -x site-packages/kubernetes/ /opt/venv/lib
COPY scripts/sbom.py scripts/
# declared here for the time of the bill: compiled modules would be checked against their sources at every import
ARG SOURCE_DATE_EPOCH
RUN python scripts/sbom.py --site /opt/venv/lib/python3.*/site-packages > /sbom.cdx.json

FROM scratch AS sbom
COPY --from=builder /sbom.cdx.json /

FROM base
ARG VERSION="0.1.0"
LABEL org.opencontainers.image.title="deferred-quota" \
      org.opencontainers.image.description="Kubernetes ResourceQuota charged where resources are really taken: at the bind" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# Nothing is installed in a running container.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/ensurepip \
           /usr/local/lib/python3.*/site-packages/pip*
COPY --from=builder /opt/venv /opt/venv
COPY --from=builder /sbom.cdx.json /usr/share/deferred-quota/
# Threads of glibc keep blocks that they gave back for themselves, and pages around them: with dozens of threads as
# much as a sixth of all memory, more by the hour. Small objects are in the heap of Python, which has no part in it.
ENV PATH=/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.arena_max=2
USER 65532:65532
WORKDIR /
HEALTHCHECK NONE
ENTRYPOINT ["deferred-quota"]
CMD ["--help"]
