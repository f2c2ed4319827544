"""The tiled matrix product."""
def matmul_text(region, ranges):
    raise KeyError
