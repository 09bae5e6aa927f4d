"""Sampling on the device: edits of logits, tokens and log-probabilities, with small copies in both directions."""

from corelm_gpu.sampling.device_sampler import DeviceSampler, Sampling

__all__ = ["DeviceSampler", "Sampling"]
