#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_upstream::fuzz::http2_upstream(bytes));
