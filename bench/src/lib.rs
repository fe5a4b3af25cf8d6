//! Workloads shared by the benchmarks.
