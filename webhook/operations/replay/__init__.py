"""Replay: the recorded past of a cluster, as a scenario that can be simulated in other modes."""
