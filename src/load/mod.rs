//! In flight, queue depth, throughput windows: arithmetic only, `at` passed in.
