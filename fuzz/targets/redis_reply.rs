#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_session::fuzz::redis_reply(bytes));
