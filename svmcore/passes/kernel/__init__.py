"""Values of kernels, and sums of them, tile by tile."""
