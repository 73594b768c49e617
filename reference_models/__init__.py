"""The bundled decode models, their kernels and their planted faults."""

if __name__ != "cudagraph_doctor.reference_models":
    raise ImportError("import cudagraph_doctor.reference_models, not reference_models")
