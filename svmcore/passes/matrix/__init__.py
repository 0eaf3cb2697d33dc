"""A K that is there: sums of its columns, squares gathered from it, triangles mirrored."""
