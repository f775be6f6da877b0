"""What kernels are measured at: one module per family, each with ``SIZES`` and ``cases(data)``."""
