//! Fuzzes policy loading and compiling: any text yields findings or a policy that compiles, also
//! after edits.

#![no_main]

#[path = "policy/story.rs"]
mod story;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| story::tell(bytes));
