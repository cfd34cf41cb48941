// Ranges on the axes of parallel coordinates.
