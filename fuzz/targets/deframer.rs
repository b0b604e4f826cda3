//! The reader of requests: any bytes, in any pieces, are read as one reads them who has them all at once.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironmesh_xds_server::fuzzing::deframer(bytes));
