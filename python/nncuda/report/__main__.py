"""`python -m nncuda.report FILE..` writes the page without a run, which the other languages have copies of."""

import sys

from ..formats import write_file
from . import whole_page

for copy in sys.argv[1:]:
    write_file(copy, whole_page())
