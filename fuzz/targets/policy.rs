//! Policy of any text, loaded and edited, is told about, and what is good in it compiles.

#![no_main]

#[path = "policy/story.rs"]
mod story;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| story::tell(bytes));
