"""The checks: one module each."""

if __name__ != "cudagraph_doctor.checks":
    raise ImportError("import cudagraph_doctor.checks, not checks")
