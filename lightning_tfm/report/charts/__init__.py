"""Pictures: the main figure, curves, grids, over one SVG renderer."""
