import logging
import os

import pytest
from corelm_gpu.doctor import why_no_device
from hypothesis import settings

# A shared machine can be slow at any moment; what a property costs is no property of the code.
settings.register_profile("corelm", deadline=None)
settings.load_profile("corelm")

if why_no_device():
    # Read when Triton is imported, which PyTorch may do in any test.
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def restore_logging():
    """Programs that run within a test set up logging for the whole process."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
