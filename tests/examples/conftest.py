"""Makes the modules of the examples importable, as they are in the source."""

import sys
from pathlib import Path

sys.path += [str(path.parent) for path in sorted((Path(__file__).parents[2] / "examples").glob("*/pyproject.toml"))]
