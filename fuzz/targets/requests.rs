//! Clients that send whatever they like, in either variant.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironmesh_xds_server::fuzzing::requests(bytes));
