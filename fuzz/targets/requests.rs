//! Fuzzes the xDS server with arbitrary client requests, both delta and state-of-the-world.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironmesh_xds_server::fuzzing::requests(bytes));
