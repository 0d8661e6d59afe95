#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_http_server::fuzz::http3_model(bytes));
