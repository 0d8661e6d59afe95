#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_rules::fuzz::response_urls(bytes));
