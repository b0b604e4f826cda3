//! Fuzzes state-of-the-world xDS: after any sequence of events, the client ends with its current
//! resources.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironmesh_xds_server::fuzzing::sotw(bytes));
