#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_har::fuzz::har(bytes));
