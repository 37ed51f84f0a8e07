"""All sections of the benchmark, in the order in which they run and are shown.

To add one: write a module with `SECTIONS`, a tuple of `measure.Section`, and name it here. The
function of a section gets a `Plan` (entrants.py) and yields `Figure`s and `Curve`s (measure.py).
"""

from __future__ import annotations

import artifacts
import calls
import growth
import processes
import retention
import watching
import wire
from measure import Section

MODULES = (growth, calls, processes, watching, retention, artifacts, wire)
SECTIONS: dict[str, Section] = {
    section.name: section for module in MODULES for section in module.SECTIONS
}
