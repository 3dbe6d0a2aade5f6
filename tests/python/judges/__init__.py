"""Tools that measure the same requests as tokengauge, and the comparison with its request log, report and metrics."""
