"""What all parts that measure share."""

from functools import cached_property

import torch
from ceilings import Ceilings
from clock import Clock, free_memory
from corelm_random_models import read_config, resolve


class Bench:
    """The clock, the ceilings, and the shapes."""

    def __init__(self, sizes):
        self.sizes = sizes
        self.dtype = getattr(torch, sizes.dtype)
        self.model = resolve(sizes.model)
        self.config = read_config(self.model)

    @cached_property
    def clock(self):
        """Times work on the device."""
        return Clock(self.sizes.repeats)

    @cached_property
    def ceilings(self):
        """Measured when first asked for: do so before something takes all memory."""
        found = Ceilings(self.clock, self.sizes)
        free_memory()
        return found
