//! Whatever happens to a delta client, it ends with what it is to have.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironmesh_xds_server::fuzzing::delta(bytes));
