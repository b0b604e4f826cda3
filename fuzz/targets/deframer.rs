//! Fuzzes the deframer of requests: bytes in any pieces give the same result as in one piece.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironmesh_xds_server::fuzzing::deframer(bytes));
