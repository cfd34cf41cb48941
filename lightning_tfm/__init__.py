"""Every row of Table 3 of "Attention Is All You Need", on any hardware. This module imports nothing, to stay light."""
