"""`python -m trueup.cli`, for where the script `trueup` is not on the path."""

from __future__ import annotations

import sys

from trueup.cli.main import main

sys.exit(main())
