"""A real Kubernetes control plane for tests: etcd, API server, scheduler, controller manager.

Everything listens on loopback and lives in one directory. `plane.ControlPlane` starts it,
`scripts/controlplane` does the same from a shell. `binaries` finds the programs and `build` makes
them from the module in this directory, which holds versions only. There is no kubelet: nodes are
objects, pods that are bound to them do not run.
"""
