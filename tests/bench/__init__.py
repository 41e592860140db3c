"""Figures of speed and size: `scripts/bench`.

Each compares what it measures with a yardstick in the same run, as machines are noisy.
"""
