"""python -m csd: see cli.py."""

import sys

from csd.cli import main

sys.exit(main())
