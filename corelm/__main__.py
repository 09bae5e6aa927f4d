"""``python -m corelm`` is ``corelm``."""

import sys

from corelm.cli import main

sys.exit(main())
